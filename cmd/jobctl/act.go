package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// confirm asks before harm is done. Without a terminal nobody can answer, so that
// --yes is needed there.
func (a *app) confirm(ctx context.Context, harm string) error {
	if a.yes || a.dryRun {
		return nil
	}
	if !isTerminal(a.in) {
		return usage("Add --yes if that is what you want.", "%s needs a yes, and there is no terminal to ask at", harm)
	}
	fmt.Fprintf(a.err, "%s? [y/N] ", printable(harm))
	answered := make(chan string, 1)
	go func() {
		// A read of a terminal does not end with ctx; the process does.
		answer, _ := bufio.NewReader(a.in).ReadString('\n') // an end without an answer is a no
		answered <- answer
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return errInterrupted
	case answer := <-answered:
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
	}
	return &failure{exitFailed, errors.New("nothing was done"), ""}
}

// jobIDs takes ids from arguments and from --id, each once, in order.
func jobIDs(cmd *cobra.Command, args, flagged []string) ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	for _, s := range append(append([]string{}, args...), flagged...) {
		id, err := uuid.Parse(s)
		if err != nil || len(s) != 36 {
			return nil, usage("An id looks like 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10; jobctl jobs list -o id prints them.", "%q is no job id", s)
		}
		if !seen[id.String()] {
			seen[id.String()] = true
			ids = append(ids, id.String())
		}
	}
	if len(ids) == 0 {
		return nil, usage(exampleOf(cmd), "%s needs the id of a job", cmd.CommandPath())
	}
	return ids, nil
}

// act does something to each of ids. done says in one word what was done.
func (a *app) act(ctx context.Context, ids []string, v view[wireJob], done string, do func(id string) ([]byte, error)) error {
	var bodies []json.RawMessage
	var failed []error
	for _, id := range ids {
		body, err := do(id)
		if err != nil {
			failed = append(failed, err)
			if len(ids) > 1 && exitCode(err) != exitInterrupted {
				fmt.Fprintf(a.err, "jobctl: %s: %s\n", id, printable(err.Error()))
			}
			if code := exitCode(err); code == exitInterrupted || code == exitUnreachable || code == exitNotAllowed {
				break // the others would fare no better
			}
			continue
		}
		if len(body) == 0 {
			body, err = json.Marshal(map[string]string{"id": id})
			if err != nil {
				return err
			}
		}
		bodies = append(bodies, body)
		a.say("%s %s", done, id)
	}
	if len(bodies) > 0 {
		if err := v.print(a, lines(bodies), bodies); err != nil {
			return err
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case len(ids) == 1 || exitCode(failed[len(failed)-1]) == exitInterrupted:
		return failed[len(failed)-1]
	case len(bodies) > 0:
		return &failure{exitPartly, fmt.Errorf("%s %d of %d", done, len(bodies), len(ids)), ""}
	}
	return &failure{exitCode(failed[0]), fmt.Errorf("%s none of %d", done, len(ids)), ""}
}

// lines is one answer as it came, or several one after the other.
func lines(bodies []json.RawMessage) []byte {
	var b []byte
	for i, body := range bodies {
		if i > 0 {
			b = append(b, '\n')
		}
		b = append(b, body...)
	}
	return b
}

// reasonBody is the optional body of an act.
func reasonBody(reason string) any {
	if reason == "" {
		return nil
	}
	return struct {
		Reason string `json:"reason"`
	}{reason}
}
