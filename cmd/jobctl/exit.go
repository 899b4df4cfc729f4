package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitNotAllowed  = 5
	exitUnreachable = 6 // or timed out
	exitPartly      = 7 // some of several ids
	exitInterrupted = 130
)

const exitCodeHelp = `Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 not allowed,
6 unreachable or timed out, 7 partly done, 130 interrupted.`

// failure is an error that knows its exit code and the next step.
type failure struct {
	code int
	err  error
	next string // what to do now; empty if the error says it
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usage(next, format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...), next}
}

// errSilent is an exit code without a message: what there was to say was said.
var errSilent = errors.New("")

var errInterrupted = errors.New("interrupted")

func exitCode(err error) int {
	var f *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	}
	return exitFailed
}

// run is jobctl from its arguments to its exit code. SIGINT and SIGTERM end what
// goes on; a second one ends the process.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals:
			signal.Stop(signals)
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	a := &app{in: in, out: out, err: errs}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	ran, err := root.ExecuteContextC(ctx)
	if err != nil && context.Cause(ctx) == errInterrupted {
		err = errInterrupted
	}
	report(errs, ran, err)
	return exitCode(err)
}

// report writes what went wrong and the next step.
func report(w io.Writer, cmd *cobra.Command, err error) {
	if err == nil || err.Error() == "" {
		return
	}
	fmt.Fprintf(w, "jobctl: %s\n", printable(err.Error()))
	var f *failure
	next := ""
	if errors.As(err, &f) {
		next = f.next
		if next == "" && f.code == exitUsage {
			next = fmt.Sprintf("See: %s --help", cmd.CommandPath())
		}
	}
	if next != "" {
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(printable(next), "\n", "\n  "))
	}
}
