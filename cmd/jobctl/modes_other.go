//go:build !unix

package main

// modesCount: a file's mode does not say who may read and write it.
const modesCount = false
