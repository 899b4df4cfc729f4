package engine

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// What goes over the pipes between a worker and the child that runs its
// suspects: gob, each of these after the other. Both ends are the same program.

// order is what the parent tells its child: a run to make, or that the context
// of the one it makes has ended, and why.
type order struct {
	Run *orderedRun
	End string
}

type orderedRun struct {
	Row     Row
	Timeout time.Duration
	Backoff json.RawMessage `json:",omitempty"`
	Calls   bool            // its end is told
	Now     time.Time       // the database's clock
}

// report is what the child tells its parent. The first has no token: it says
// that the child can take orders.
type report struct {
	Token    int64
	Started  bool // the handler is called next
	Line     *logLine
	Progress *reportedProgress
	InTx     bool // CompleteTx has written the run's end into the handler's transaction
	Verdict  *reportedVerdict
	Repeated string // the scope of an idempotency key that found its first answer
}

type reportedProgress struct {
	Percent float32
	Text    string
}

// reportedVerdict is a verdict with the run's result.
type reportedVerdict struct {
	Outcome                            Outcome
	Next                               next
	Delay                              time.Duration
	Carried, Crashes                   int
	Class, Message, Stack, Fingerprint string
	Result                             []byte
}

func reported(v verdict, result []byte) *reportedVerdict {
	return &reportedVerdict{Outcome: v.outcome, Next: v.next, Delay: v.delay, Carried: v.carried, Crashes: v.crashes, Class: v.class,
		Message: v.message, Stack: v.stack, Fingerprint: v.fingerprint, Result: result}
}

func (v *reportedVerdict) verdict() verdict {
	return verdict{outcome: v.Outcome, next: v.Next, delay: v.Delay, carried: v.Carried, crashes: v.Crashes, class: v.Class,
		message: v.Message, stack: v.Stack, fingerprint: v.Fingerprint}
}

// endings are the causes that keep their identity on the way to the child, by
// their text.
var endings = []error{ErrLeaseLost, ErrTimeout, ErrStopping, ErrStopRequested}

func endingOf(text string) error {
	if i := slices.IndexFunc(endings, func(err error) bool { return err.Error() == text }); i >= 0 {
		return endings[i]
	}
	return errors.New(text)
}

// record is a line as slog knows it.
func (l *logLine) record() slog.Record {
	var level slog.Level
	if level.UnmarshalText([]byte(l.Level)) != nil {
		level = slog.LevelInfo
	}
	r := slog.NewRecord(l.Time, level, l.Msg, 0)
	for k, v := range l.Fields {
		r.AddAttrs(slog.String(k, v))
	}
	return r
}
