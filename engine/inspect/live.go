package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// addLive adds what the current or last run tells, and whether it was asked to
// stop.
func (r *Reader) addLive(ctx context.Context, j *Job) (err error) {
	if j.FencingToken == 0 {
		return nil
	}
	if j.Lease == nil {
		row, err := r.q.GetRunProgress(ctx, r.pool, j.ID, j.FencingToken)
		if err == nil {
			j.Progress = progressOf(row.Progress, row.ProgressText)
		}
		return ignoreNone(err)
	}
	told, _, progress, err := r.live(ctx, j.ID, j.FencingToken)
	if err != nil {
		return err
	}
	j.Progress, j.UpdatedAt = progress, latest(j.UpdatedAt, told)
	s, err := r.q.GetStopRequest(ctx, r.pool, j.ID, j.FencingToken)
	if err == nil {
		j.Stop = &StopRequest{At: s.RequestedAt.UTC(), Actor: s.Actor, Reason: s.Reason}
		j.UpdatedAt = latest(j.UpdatedAt, j.Stop.At)
	}
	return ignoreNone(err)
}

// live is what a run that goes on has told.
func (r *Reader) live(ctx context.Context, id engine.ID, token int64) (at time.Time, logs json.RawMessage, p *Progress, err error) {
	x, err := r.q.GetLive(ctx, r.pool, token, id)
	if err != nil {
		return at, nil, nil, ignoreNone(err)
	}
	return x.UpdatedAt.UTC(), rawJSON(x.Logs), progressOf(x.Progress, x.ProgressText), nil
}

func ignoreNone(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func progressOf(percent float32, text string) *Progress {
	if percent < 0 {
		return nil
	}
	return &Progress{Percent: math.Round(float64(percent)*10) / 10, Text: text}
}

// LogLine is a line that a run's handler wrote.
type LogLine struct {
	Run          int64
	FencingToken int64
	// N is the line's number in its run, from 1; 0 for the note that earlier lines
	// were dropped.
	N      int
	At     time.Time
	Level  string
	Text   string
	Fields map[string]string
}

// Logs reads the log lines of all runs of a job, oldest run first; those of the
// run that goes on are a second old at most. Error: [engine.ErrJobNotFound].
func (r *Reader) Logs(ctx context.Context, id engine.ID) ([]LogLine, error) {
	runs, err := r.Attempts(ctx, id)
	if err != nil {
		return nil, err
	}
	var list []LogLine
	for i := range runs {
		lines, err := linesOf(&runs[i])
		if err != nil {
			return nil, fmt.Errorf("read log of job %s: %w", id, err)
		}
		list = append(list, lines...)
	}
	return slices.Clip(list), nil
}

func linesOf(a *Attempt) ([]LogLine, error) {
	if len(a.Logs) == 0 {
		return nil, nil
	}
	var stored []struct {
		N      int               `json:"n"`
		Time   time.Time         `json:"time"`
		Level  string            `json:"level"`
		Msg    string            `json:"msg"`
		Fields map[string]string `json:"fields"`
	}
	if err := json.Unmarshal(a.Logs, &stored); err != nil {
		return nil, err
	}
	lines := make([]LogLine, len(stored))
	for i, l := range stored {
		lines[i] = LogLine{Run: a.Run, FencingToken: a.FencingToken, N: l.N, At: l.Time.UTC(), Level: l.Level, Text: l.Msg, Fields: l.Fields}
	}
	return lines, nil
}
