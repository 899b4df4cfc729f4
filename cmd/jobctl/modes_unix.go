//go:build unix

package main

// modesCount: a file's mode says who may read and write it.
const modesCount = true
