package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// What a run keeps of its log: the last lines that fit.
const (
	maxLogLines = 200
	maxLogBytes = 16 << 10
)

// logLine is one line as it is kept and shown.
type logLine struct {
	N      int               `json:"n,omitempty"` // its number in the run, from 1
	Time   time.Time         `json:"time"`
	Level  string            `json:"level"`
	Msg    string            `json:"msg"`
	Fields map[string]string `json:"fields,omitempty"`
}

// runLog keeps a run's last lines.
type runLog struct {
	fresh   *atomic.Bool // set with each line
	mu      sync.Mutex
	lines   []json.RawMessage
	bytes   int
	dropped int
	last    int
}

func (l *runLog) add(line logLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line.N = l.last + 1
	b, err := json.Marshal(line)
	if err != nil {
		return
	}
	l.last++
	l.fresh.Store(true)
	l.lines = append(l.lines, b)
	l.bytes += len(b)
	for len(l.lines) > maxLogLines || l.bytes > maxLogBytes {
		l.bytes -= len(l.lines[0])
		l.lines = l.lines[1:]
		l.dropped++
	}
}

// json is what job_executions.logs gets; "" without a line.
func (l *runLog) json() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	if l.dropped > 0 {
		first, err := json.Marshal(logLine{Level: "INFO", Msg: fmt.Sprintf("%d earlier lines were dropped", l.dropped)})
		if err == nil {
			lines = append([]json.RawMessage{first}, lines...)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	b, err := json.Marshal(lines)
	if err != nil {
		return ""
	}
	return string(b)
}

// runHandler writes to the run's log and passes on to the engine's.
type runHandler struct {
	log    *runLog
	outer  slog.Handler
	tell   func(logLine) // in a child: the line goes to the parent, instead of outer
	fields []slog.Attr
	prefix string
}

var _ slog.Handler = (*runHandler)(nil)

func (h *runHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (h *runHandler) Handle(ctx context.Context, r slog.Record) error {
	line := logLine{Time: r.Time.UTC(), Level: r.Level.String(), Msg: clean(r.Message, 4<<10)}
	add := func(a slog.Attr) bool {
		if line.Fields == nil {
			line.Fields = map[string]string{}
		}
		line.Fields[clean(h.prefix+a.Key, 200)] = clean(a.Value.Resolve().String(), 4<<10)
		return true
	}
	for _, a := range h.fields {
		add(a)
	}
	r.Attrs(add)
	h.log.add(line)
	if h.tell != nil {
		h.tell(line)
		return nil
	}
	if h.outer.Enabled(ctx, r.Level) {
		return h.outer.Handle(ctx, r)
	}
	return nil
}

func (h *runHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.fields = append(append([]slog.Attr(nil), h.fields...), attrs...)
	next.outer = h.outer.WithAttrs(attrs)
	return &next
}

func (h *runHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.prefix += name + "."
	next.outer = h.outer.WithGroup(name)
	return &next
}
