package engine

import (
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// split makes the two statements' arrays: plain successes, and all else.
func (f *finisher) split(batch []ended, careful bool) (fast dbsqlc.CompleteJobsParams, slow dbsqlc.CloseJobsParams) {
	fast.WorkerID, slow.WorkerID = f.e.workerID, f.e.workerID
	slow.DiscardDead, slow.Worker = f.e.cfg.DiscardDead, f.e.self
	for i := range batch {
		x := &batch[i]
		if x.closed {
			continue
		}
		row := &x.run.row
		started, wait := x.started(), int32(min(x.wait().Milliseconds(), 1<<31-1))
		if x.plain() && !careful && !x.run.closedInTx.Load() {
			fast.Claims = append(fast.Claims, row.FencingToken)
			fast.JobIds = append(fast.JobIds, row.ID)
			fast.Tokens = append(fast.Tokens, row.FencingToken)
			fast.Attempts = append(fast.Attempts, int16(row.Attempt))
			fast.StartedAt = append(fast.StartedAt, started)
			fast.WaitMs = append(fast.WaitMs, wait)
			continue
		}
		v := &x.verdict
		slow.Claims = append(slow.Claims, row.FencingToken)
		slow.JobIds = append(slow.JobIds, row.ID)
		slow.Tokens = append(slow.Tokens, row.FencingToken)
		slow.Attempts = append(slow.Attempts, int16(row.Attempt))
		slow.Carried = append(slow.Carried, int16(v.carried))
		slow.Crashes = append(slow.Crashes, int16(v.crashes))
		slow.Started = append(slow.Started, !x.run.began.IsZero())
		slow.StartedAt = append(slow.StartedAt, started)
		slow.WaitMs = append(slow.WaitMs, wait)
		slow.Outcomes = append(slow.Outcomes, int16(v.outcome))
		slow.Next = append(slow.Next, string(v.next))
		slow.DelaySeconds = append(slow.DelaySeconds, v.delay.Seconds())
		slow.Classes = append(slow.Classes, v.class)
		slow.Errors = append(slow.Errors, v.message)
		slow.Stacks = append(slow.Stacks, v.stack)
		slow.Fingerprints = append(slow.Fingerprints, v.fingerprint)
		slow.Logs = append(slow.Logs, x.logs)
		slow.Results = append(slow.Results, string(x.result))
		slow.Progress = append(slow.Progress, x.percent)
		slow.ProgressTexts = append(slow.ProgressTexts, x.text)
	}
	slices.Sort(fast.Claims)
	fast.Claims = slices.Compact(fast.Claims)
	slices.Sort(slow.Claims)
	slow.Claims = slices.Compact(slow.Claims)
	return fast, slow
}

// started is when the handler began, by the database's clock.
func (x *ended) started() time.Time {
	if x.run.began.IsZero() {
		return x.run.lease.claimedAt
	}
	return x.run.lease.dbTime(x.run.began)
}

func (x *ended) wait() time.Duration { return max(x.started().Sub(x.run.row.ReadyAt), 0) }

func (x *ended) tried() string {
	tried := map[string]any{"took_ms": x.took.Milliseconds()}
	if x.verdict.outcome != 0 {
		tried["outcome"], tried["error_class"], tried["error"] = x.verdict.outcome.String(), x.verdict.class, x.verdict.message
	}
	b, err := json.Marshal(tried)
	if err != nil {
		return ""
	}
	return string(b)
}

// bucketBounds are the upper bounds of the histograms in job_stats_minutes and
// in the metrics; what is above the last goes to one more bucket.
var bucketBounds = [...]time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}

// BucketBounds returns the upper bounds of the duration histograms, ascending.
func BucketBounds() []time.Duration { return slices.Clone(bucketBounds[:]) }

func bucketOf(d time.Duration) int {
	for i, b := range bucketBounds {
		if d <= b {
			return i
		}
	}
	return len(bucketBounds)
}

// tally sums a batch by queue, type and outcome, without what CompleteTx counted.
func tally(batch []ended) []dbsqlc.AddStatsParams {
	type line struct {
		queue, jobType string
		outcome        Outcome
	}
	index := map[line]int{}
	var sums []dbsqlc.AddStatsParams
	for i := range batch {
		x := &batch[i]
		if x.closed {
			continue
		}
		l := line{x.run.row.Queue, x.run.row.Type, x.verdict.outcome}
		at, ok := index[l]
		if !ok {
			at = len(sums)
			index[l] = at
			sums = append(sums, dbsqlc.AddStatsParams{Queue: l.queue, Type: l.jobType, Outcome: int16(l.outcome),
				WaitBuckets: make([]int32, len(bucketBounds)+1), RunBuckets: make([]int32, len(bucketBounds)+1)})
		}
		s := &sums[at]
		s.N++
		s.RunMs += x.took.Milliseconds()
		if !x.run.began.IsZero() {
			s.WaitBuckets[bucketOf(x.wait())]++
			s.RunBuckets[bucketOf(x.took)]++
		}
	}
	return sums
}

// logEnded writes the line of a run's end.
func (e *Engine) logEnded(x *ended) {
	v := &x.verdict
	level := slog.LevelInfo
	message := LogJobCompleted
	_, dead := v.dead()
	switch {
	case dead:
		level, message = slog.LevelError, LogJobFailedPermanently
	case v.outcome == OutcomeFailed || v.outcome == OutcomeTimedOut:
		level, message = slog.LevelWarn, LogJobFailedRetrying
	case v.outcome == OutcomeCrashed:
		level, message = slog.LevelWarn, LogJobCrashed
	case v.outcome != OutcomeCompleted:
		message = "job " + v.outcome.String()
	}
	if !e.log.Enabled(e.runs, level) {
		return
	}
	l := e.log.With(x.run.attrs()...).With("duration_ms", x.took.Milliseconds())
	if v.message != "" {
		l = l.With("error", v.message, "error_class", v.class, "fingerprint", v.fingerprint)
	}
	switch {
	case dead:
		l = l.With("reason", string(v.next))
	case v.next == nextScheduled:
		l = l.With("next_run_at", x.run.lease.dbTime(time.Now()).Add(v.delay).UTC())
	}
	l.Log(e.runs, level, message)
}

func (e *Engine) logClaimed(runs []*run, until time.Time) {
	if !e.log.Enabled(e.runs, slog.LevelDebug) {
		return
	}
	for _, r := range runs {
		e.log.With(r.attrs()...).Debug(LogJobLocked, "lease_expires_at", until.UTC())
	}
}
