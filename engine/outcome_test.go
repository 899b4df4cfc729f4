package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

type gatewayTimeout struct{}

func (gatewayTimeout) Error() string      { return "gateway timed out" }
func (gatewayTimeout) ErrorClass() string { return "GatewayTimeout" }

func TestErrorsAreClassedByWhatTheyAre(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "error"},
		{fmt.Errorf("send: %w", errors.New("plain")), "error"},
		{fmt.Errorf("call: %w", refused), "net.OpError"},
		{Permanent(fmt.Errorf("read: %w", &fs.PathError{Op: "open", Err: fs.ErrNotExist})), "fs.PathError"},
		{RetryAfter(fmt.Errorf("call: %w", gatewayTimeout{}), time.Second), "GatewayTimeout"},
		{errors.Join(refused, errors.New("later")), "net.OpError"},
		{&panicError{value: "boom"}, "panic"},
	} {
		if got := classOf(c.err); got != c.want {
			t.Errorf("classOf(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}

func TestOneCauseHasOneFingerprint(t *testing.T) {
	t.Parallel()
	same := []string{
		`charge 8123: POST "https://pay.example.net/a": timeout after 10.2s at 2026-11-30T02:07:12Z from 10.0.0.7:443 (0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10)`,
		`charge 9: POST "https://pay.example.net/b?x=1": timeout after 9s at 2026-11-29T23:59:59.123Z from 10.20.30.40:8443 (0193b6a2-71c0-7c41-9a57-000000000000)`,
	}
	first := fingerprint("charge", "Timeout", same[0], "")
	if got := fingerprint("charge", "Timeout", same[1], ""); got != first {
		t.Errorf("fingerprints %s and %s of one cause differ", first, got)
	}
	for name, other := range map[string]string{
		"type":  fingerprint("refund", "Timeout", same[0], ""),
		"class": fingerprint("charge", "Refused", same[0], ""),
		"text":  fingerprint("charge", "Timeout", "another thing", ""),
	} {
		if other == first {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
	if !strings.HasPrefix(first, "v1:") {
		t.Errorf("fingerprint %s does not begin with its version", first)
	}
}

// The table of verdicts, without a database.
func TestWhatARunReturnsDecidesWhatBecomesOfItsJob(t *testing.T) {
	t.Parallel()
	fixed := TypeOptions{Retry: RetryFunc(func(n int) time.Duration { return time.Duration(n) * time.Second })}
	row := Row{Type: "charge", Attempt: 2, MaxAttempts: 3, Crashes: 2}
	last := Row{Type: "charge", Attempt: 3, MaxAttempts: 3}
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		row     Row
		err     error
		cause   error
		outcome Outcome
		next    next
		delay   time.Duration
		carried int
		crashes int
	}{
		"success":                       {row: row, outcome: OutcomeCompleted, carried: 1},
		"error":                         {row: row, err: boom, outcome: OutcomeFailed, next: nextScheduled, delay: 2 * time.Second, carried: 2},
		"last attempt":                  {row: last, err: boom, outcome: OutcomeFailed, next: next(ReasonExhausted), carried: 3},
		"permanent":                     {row: row, err: Permanent(boom), outcome: OutcomeFailed, next: next(ReasonPermanent), carried: 2},
		"retry after":                   {row: row, err: RetryAfter(boom, time.Minute), outcome: OutcomeFailed, next: nextScheduled, delay: time.Minute, carried: 2},
		"retry after, last":             {row: last, err: RetryAfter(boom, time.Minute), outcome: OutcomeFailed, next: next(ReasonExhausted), carried: 3},
		"snooze uses none":              {row: last, err: Snooze(time.Hour), outcome: OutcomeSnoozed, next: nextScheduled, delay: time.Hour, carried: 2},
		"timeout":                       {row: row, err: context.DeadlineExceeded, cause: ErrTimeout, outcome: OutcomeTimedOut, next: nextScheduled, delay: 2 * time.Second, carried: 2},
		"own error after the timeout":   {row: row, err: boom, cause: ErrTimeout, outcome: OutcomeFailed, next: nextScheduled, delay: 2 * time.Second, carried: 2},
		"stopping hands back":           {row: row, err: context.Canceled, cause: ErrStopping, outcome: OutcomeHandedBack, next: nextReady, carried: 1, crashes: 2},
		"permanent even while stopping": {row: row, err: Permanent(boom), cause: ErrStopping, outcome: OutcomeFailed, next: next(ReasonPermanent), carried: 2},
		"done even while stopping":      {row: row, cause: ErrStopping, outcome: OutcomeCompleted, carried: 1},
	} {
		v := judge(c.row, c.err, c.cause, fixed)
		if v.outcome != c.outcome || v.next != c.next || v.delay != c.delay || v.carried != c.carried || v.crashes != c.crashes {
			t.Errorf("%s: %s next %q delay %s carried %d crashes %d, want %s %q %s %d %d", name, v.outcome, v.next, v.delay, v.carried, v.crashes,
				c.outcome, c.next, c.delay, c.carried, c.crashes)
		}
	}
}
