package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	watchUsually = 2 * time.Second
	watchLeast   = 100 * time.Millisecond
)

// watchFlags are those of a command that can be asked again and again.
type watchFlags struct {
	on    bool
	every time.Duration
}

// watched gives a command that reads something --watch and --interval.
func (a *app) watched(cmd *cobra.Command) *cobra.Command {
	var w watchFlags
	cmd.Flags().BoolVarP(&w.on, "watch", "w", false, "ask again and again until interrupted; away from a terminal each answer follows the last")
	cmd.Flags().DurationVar(&w.every, "interval", watchUsually, "`time` between two answers, with --watch")
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !w.on {
			if cmd.Flags().Changed("interval") {
				return usage("Add --watch.", "--interval goes with --watch")
			}
			return once(cmd, args)
		}
		if w.every < watchLeast {
			return usage("Give 100ms or more.", "--interval %s is too short", w.every)
		}
		title := strings.Join(append([]string{cmd.CommandPath()}, args...), " ")
		return a.watch(cmd.Context(), w.every, title, func() error { return once(cmd, args) })
	}
	return cmd
}

// watch shows something until ctx ends. Once there was an answer, a server that
// does not answer is waited for: the next restart of it must not end a watch.
func (a *app) watch(ctx context.Context, every time.Duration, title string, show func() error) error {
	if a.format == formatJSON { // one answer after the other is lines of JSON
		defer func(out io.Writer) { a.out = out }(a.out)
		a.out = &compactor{out: a.out}
	}
	var paint painter = &appender{app: a}
	if a.redraws() {
		s := &screen{out: a.out.(*os.File), title: title, every: every}
		defer s.close()
		paint = s
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	answered := false
	for {
		err := paint.frame(a, show)
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case err == nil || errors.Is(err, errSilent):
			answered = true
		case answered && exitCode(err) == exitUnreachable:
			a.say("%s  Asking again.", err)
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-tick.C:
		}
	}
}

// redraws tells whether there is a terminal whose screen can be painted over.
func (a *app) redraws() bool {
	return (a.format == formatTable || a.format == formatWide) && isTerminal(a.out) && !a.cfg.Ctl.DumbTerminal
}

// painter shows one answer after the other.
type painter interface {
	frame(a *app, show func() error) error
}

// appender writes each answer below the last, with a line between that names the
// time. Forms for programs have no such line.
type appender struct {
	app  *app
	more bool
}

func (p *appender) frame(a *app, show func() error) error {
	if a.format == formatTable || a.format == formatWide {
		if p.more {
			if err := a.write([]byte("\n")); err != nil {
				return err
			}
		}
		p.more = true
		if err := a.write([]byte("--- " + time.Now().UTC().Format(time.RFC3339) + "\n")); err != nil {
			return err
		}
	}
	return show()
}

// screen paints each answer over the last. What would not fit is left out: a
// screen that scrolls cannot be painted over.
type screen struct {
	out   *os.File
	title string
	every time.Duration
	used  bool
}

func (s *screen) frame(a *app, show func() error) error {
	var b bytes.Buffer
	out, errs := a.out, a.err
	a.out, a.err = &b, &b // talk belongs to the picture
	err := show()
	a.out, a.err = out, errs
	if err != nil && !errors.Is(err, errSilent) {
		return err
	}
	head := fmt.Sprintf("Every %s: %s   %s\n\n", s.every, printable(s.title), time.Now().UTC().Format("15:04:05 UTC"))
	return a.write(s.picture(head + b.String()))
}

// picture writes text from the top left, each line to its end and then what is
// below. Lines are not wrapped.
func (s *screen) picture(text string) []byte {
	_, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || height < 3 {
		height = 24
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > height-1 {
		lines = append(lines[:height-2:height-2], "…")
	}
	var b bytes.Buffer
	if !s.used {
		b.WriteString("\x1b[?7l\x1b[2J")
		s.used = true
	}
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	return b.Bytes()
}

// close gives the terminal its wrapping back.
func (s *screen) close() {
	if s.used {
		_, _ = s.out.WriteString("\x1b[?7h") // nothing better can be done
	}
}

// compactor writes each JSON value that it is given as one line.
type compactor struct{ out io.Writer }

func (c *compactor) Write(p []byte) (int, error) {
	line := compactLine(p)
	if _, err := c.out.Write(line); err != nil {
		return 0, err
	}
	return len(p), nil
}
