package console

import (
	"slices"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// signs are what the verdict is judged by.
type signs struct {
	// Unreachable: the newest reading failed because the database is away. Late: it
	// took too long.
	Unreachable, Late bool
	Stale             string // since when there are no fresh figures
	Queues            []inspect.Queue
	Target            time.Duration // how long a ready job may wait
	// ReaperAge is the time since the last pass; negative if there was none yet.
	ReaperAge, ReaperInterval time.Duration
	// Watched is how long this process has been looking: the first pass of a new
	// installation is not late before three intervals of it.
	Watched        time.Duration
	Runs5, Failed5 int64
	Deaths         inspect.Deaths
	Reaped5        int64
	LostWorkers    int
}

// Failures are a sign from this many runs on: two of three say nothing.
const (
	fewRuns      = 20
	failureLimit = 0.05
)

// verdict is what judge found: the worst, and all else that is wrong.
type verdict struct {
	level  views.State
	text   string // a sentence without its full stop
	path   string // to the cause
	link   string // names the cause
	since  time.Time
	others []string // what else is wrong, the worst first
}

// finding is one thing that is wrong.
type finding struct {
	level views.State
	text  string
	path  string
	link  string
	since time.Time
	brief string // the same, among others
}

// judge is the only place where the rules of the verdict stand. Critical: the
// database does not answer, a queue has ready jobs and no living worker, the
// reaper is silent for three intervals. Degraded: more than 5 % of at least 20
// runs failed in 5 minutes, the oldest ready job waits longer than the target, a
// job died or a lease was taken back within 5 minutes, a queue is paused. Else
// healthy.
func judge(s signs) verdict {
	list := slices.Concat(s.database(), s.unserved(), s.reaper(), s.deaths(), s.failures(), s.waiting(), s.reaped(), s.paused())
	if len(list) == 0 {
		return verdict{level: views.LevelHealthy, text: "work flows, nothing waits longer than it should"}
	}
	slices.SortStableFunc(list, func(a, b finding) int { return rank(b.level) - rank(a.level) })
	first := list[0]
	v := verdict{level: first.level, text: first.text, path: first.path, link: first.link, since: first.since}
	for _, f := range list[1:] {
		v.others = append(v.others, f.brief)
	}
	return v
}

func rank(level views.State) int {
	if level == views.LevelCritical {
		return 1
	}
	return 0
}

func (s signs) database() []finding {
	switch {
	case s.Unreachable:
		return []finding{{level: views.LevelCritical, text: "the database does not answer; " + s.Stale, path: "/system", link: "system", brief: "the database does not answer"}}
	case s.Late:
		return []finding{{level: views.LevelDegraded, text: "the figures are late; " + s.Stale, path: "/system", link: "system", brief: "the figures are late"}}
	}
	return nil
}

func (s signs) unserved() []finding {
	var names []string
	var ready int64
	for i := range s.Queues {
		if q := &s.Queues[i]; q.Depth.Ready > 0 && q.Workers == 0 && !q.Paused {
			names, ready = append(names, q.Name), ready+q.Depth.Ready
		}
	}
	if len(names) == 0 {
		return nil
	}
	what := "no worker serves " + some(names)
	return []finding{{
		level: views.LevelCritical, text: what + "; " + plural(ready, "ready job") + " " + verb(ready, "waits", "wait"), path: "/workers", link: "workers", brief: what,
	}}
}

func (s signs) reaper() []finding {
	if s.ReaperAge >= 0 && s.ReaperAge <= 3*s.ReaperInterval {
		return nil
	}
	what := "the reaper has been silent for " + span(s.ReaperAge)
	if s.ReaperAge < 0 {
		if len(s.Queues) == 0 || s.Watched <= 3*s.ReaperInterval {
			return nil // nothing was ever enqueued, or it is about to run
		}
		what = "the reaper has not run yet"
	}
	return []finding{{level: views.LevelCritical, text: what + "; lost jobs are not taken back", path: "/system", link: "system", brief: what}}
}

func (s signs) deaths() []finding {
	if s.Deaths.Recent == 0 {
		return nil
	}
	n := s.Deaths.N
	f := finding{
		level: views.LevelDegraded, path: "/dlq", link: "dead letters", text: plural(n, "job") + " died in the last hour",
		brief: plural(n, "job") + " died in the last hour",
	}
	if s.Deaths.TopN > 1 {
		f.text += ", " + wholeShare(s.Deaths.TopN, n) + " with one error"
	}
	if s.Deaths.Top.Fingerprint != "" {
		f.path, f.since = "/dlq/groups/"+escape(s.Deaths.Top.Fingerprint), s.Deaths.TopFirst
		f.link = strings.Join(filled(s.Deaths.Queue, s.Deaths.Type, className(s.Deaths.Top.Class)), " / ")
	}
	return []finding{f}
}

func (s signs) failures() []finding {
	if s.Runs5 < fewRuns || float64(s.Failed5) <= failureLimit*float64(s.Runs5) {
		return nil
	}
	what := share(s.Failed5, s.Runs5) + " of " + count(s.Runs5) + " runs failed in 5 min"
	return []finding{{level: views.LevelDegraded, text: what, path: "/types", link: "types", brief: what}}
}

func (s signs) waiting() []finding {
	var worst *inspect.Queue
	for i := range s.Queues {
		q := &s.Queues[i]
		if !q.Paused && q.OldestReady > s.Target && (worst == nil || q.OldestReady > worst.OldestReady) {
			worst = q
		}
	}
	if worst == nil {
		return nil
	}
	what := worst.Name + " waits " + span(worst.OldestReady) + " (target " + span(s.Target) + ")"
	return []finding{{level: views.LevelDegraded, text: what, path: "/queues/" + escape(worst.Name), link: worst.Name, brief: what}}
}

func (s signs) reaped() []finding {
	if s.Reaped5 == 0 {
		return nil
	}
	what := plural(s.Reaped5, "run") + " " + verb(s.Reaped5, "was", "were") + " lost with " + verb(s.Reaped5, "its worker", "their workers") + " in 5 min"
	if s.LostWorkers > 0 {
		what += ", " + plural(int64(s.LostWorkers), "worker") + " lost"
	}
	return []finding{{level: views.LevelDegraded, text: what, path: "/workers", link: "workers", brief: what}}
}

func (s signs) paused() []finding {
	var names []string
	for i := range s.Queues {
		if s.Queues[i].Paused {
			names = append(names, s.Queues[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	what := some(names) + " " + verb(int64(len(names)), "is", "are") + " paused"
	return []finding{{level: views.LevelDegraded, text: what, path: "/queues", link: "queues", brief: what}}
}

// some names up to three things.
func some(names []string) string {
	switch n := len(names); {
	case n == 1:
		return names[0]
	case n <= 3:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	default:
		return strings.Join(names[:2], ", ") + " and " + count(int64(n-2)) + " more"
	}
}

// className is a class that tells something; empty for the others.
func className(class string) string {
	if plainClasses[class] {
		return ""
	}
	return cut(class, 60)
}

func filled(words ...string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return w == "" })
}

// signs are read off the last good figures, nil if there are none; trouble is what
// went wrong with the newest reading.
func (k *Console) signs(f *figures, trouble error) signs {
	s := signs{Target: k.LatencyTarget, ReaperInterval: k.ReaperInterval, ReaperAge: -1, Watched: time.Since(k.since)}
	if trouble != nil {
		s.Late = isDeadline(trouble)
		s.Unreachable, s.Stale = !s.Late, f.staleSince()
	}
	if f == nil {
		s.ReaperAge = 0 // nothing is known of it
		return s
	}
	s.Queues, s.Deaths = f.snap.Queues, f.pulse.Deaths
	s.Runs5, s.Failed5, s.Reaped5 = f.stats.all.runs5, f.stats.all.failed5, f.stats.all.reaped5
	s.LostWorkers = f.snap.Fleet.ByStatus[inspect.WorkerLost]
	if t := f.task("reaper"); t != nil {
		s.ReaperAge = t.Age
	}
	return s
}
