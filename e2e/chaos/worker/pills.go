//go:build linux || darwin || freebsd

package main

import (
	"os"
	"runtime/debug"
	"time"
)

// pills are handlers that end their process, and one that never ends.
var pills = map[string]func(*job) error{
	"pill.exit":   func(*job) error { os.Exit(3); return nil },
	"pill.stack":  overflow,
	"pill.map":    writeTogether,
	"pill.memory": exhaust,
	"pill.panic":  panicElsewhere,
	"pill.loop":   loop,
}

func overflow(*job) error {
	debug.SetMaxStack(1 << 20)
	_ = deeper(1)
	return nil
}

//lint:ignore SA5007 a stack without an end is what this pill is
func deeper(n int) int { return n + deeper(n+1) }

// writeTogether is found out by the runtime, which ends the process: no recover
// catches that.
func writeTogether(*job) error {
	shared := map[int]int{}
	for range 4 {
		go func() {
			for i := 0; ; i++ {
				shared[i%16] = i
			}
		}()
	}
	select {}
}

var kept [][]byte

// exhaust asks for more than the address space that main allows.
func exhaust(*job) error {
	for {
		kept = append(kept, make([]byte, 1<<30))
	}
}

func panicElsewhere(*job) error {
	go func() { panic("in a goroutine that nobody guards") }()
	select {}
}

// loop never returns, whatever becomes of its context.
func loop(*job) error {
	for {
		time.Sleep(20 * time.Millisecond)
	}
}
