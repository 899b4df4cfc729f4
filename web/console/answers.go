package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/overview"
)

const (
	shownFailures = 3
	shownStuck    = 3 // queues that wait; paused ones come on top
	mostStuck     = 5
	shownChanges  = 5
)

// Overview is what the first page answers, from the figures that all viewers
// share: it costs no query of its own. While the database is away it is the last
// good figures under a verdict that says so, or an error if there never were any.
func (k *Console) Overview(ctx context.Context) (overview.Overview, error) {
	f, trouble := k.board.look(ctx)
	if f == nil && trouble != nil {
		return overview.Overview{}, trouble
	}
	got := judge(k.signs(f, trouble))
	o := overview.Overview{Verdict: overview.Verdict{Level: levels[got.level], Text: got.text, Cause: got.link, Since: got.since, Also: got.others}}
	o.At, o.Flow, o.Failing, o.Changed = f.at, f.flow(), f.failing(), f.changed()
	o.Stuck = overview.Stuck{Target: k.LatencyTarget, Queues: f.stuck()}
	o.Workers = overview.Workers{Fleet: f.snap.Fleet, Reaped15: f.stats.all.reaped15, Tasks: f.snap.Tasks}
	o.Dead = overview.Dead{Total: f.dead(), LastHour: f.pulse.Deaths.N}
	return o, nil
}

var levels = map[views.State]overview.Level{
	views.LevelHealthy: overview.Healthy, views.LevelDegraded: overview.Degraded, views.LevelCritical: overview.Critical,
}

func (f *figures) flow() overview.Flow {
	flow := overview.Flow{Ended: float64(f.stats.all.runs5) / 5}
	for _, q := range f.snap.Queues {
		flow.Enqueued += q.PerMinute.Enqueued
		flow.Completed += q.PerMinute.Completed
	}
	// What came in within 15 minutes less what reached its end.
	var change float64
	for i := hour - 15; i < hour; i++ {
		if f.pulse.Enqueued[i] < 0 {
			flow.Uncounted = true
			return flow
		}
		change += float64(f.pulse.Enqueued[i]) - f.stats.all.completed[i]
	}
	flow.Backlog = int64(change) - f.deathsWithin(15*time.Minute)
	return flow
}

// deathsWithin is not kept by minute: an hour's deaths are spread evenly.
func (f *figures) deathsWithin(d time.Duration) int64 {
	return int64(float64(f.pulse.Deaths.N) * d.Minutes() / hour)
}

func (f *figures) failing() overview.Failing {
	all := f.stats.all
	return overview.Failing{
		Runs5: all.runs5, Failed5: all.failed5, Runs60: all.runs60, Failed60: all.failed60,
		Groups: f.pulse.Failures[:min(len(f.pulse.Failures), shownFailures)],
	}
}

func (f *figures) oldestReady() time.Duration {
	var oldest time.Duration
	for i := range f.snap.Queues {
		oldest = max(oldest, f.snap.Queues[i].OldestReady)
	}
	return oldest
}

// stuck are the queues that wait longest, the worst first, and those paused.
func (f *figures) stuck() []inspect.Queue {
	queues := slices.Clone(f.snap.Queues)
	slices.SortStableFunc(queues, func(a, b inspect.Queue) int { return int(b.OldestReady - a.OldestReady) })
	list := []inspect.Queue{}
	for i := range queues {
		q := &queues[i]
		if q.Depth.Ready == 0 && !q.Paused || len(list) >= shownStuck && !q.Paused || len(list) == mostStuck {
			continue
		}
		list = append(list, *q)
	}
	return list
}

// changed are acts and new builds, the newest first.
func (f *figures) changed() []overview.Change {
	list := []overview.Change{}
	for i := range f.pulse.Actions {
		a := &f.pulse.Actions[i]
		list = append(list, overview.Change{At: a.At, Action: a.Action, TargetKind: a.TargetKind, Target: a.Target, By: a.Actor, Source: a.Source, Reason: a.Reason})
	}
	for _, b := range f.pulse.Builds {
		list = append(list, overview.Change{At: b.FirstAt, Action: "build", TargetKind: "build", Target: b.Version, By: strings.Join(b.Names, ", "), Source: "deploy"})
	}
	slices.SortStableFunc(list, func(a, b overview.Change) int { return b.At.Compare(a.At) })
	return list[:min(len(list), shownChanges)]
}
