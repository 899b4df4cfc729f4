package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The verdicts, from well to worst.
const (
	healthy  = "Healthy"
	degraded = "Degraded"
	critical = "Critical"
)

const (
	recently      = 5 * time.Minute
	latencyTarget = 60 * time.Second
	failureShare  = 0.05
	failureRuns   = 20 // fewer say nothing
)

// verdict is one word and why.
type verdict struct {
	word    string
	reasons []string
}

// judge is the rules of the overview, as far as the API's answers tell.
func judge(s standing) verdict {
	if bad := s.ready.failing(); len(bad) > 0 || s.ready.Status != "pass" {
		slices.Sort(bad)
		return verdict{critical, []string{strings.TrimSuffix("the server is not ready: "+strings.Join(bad, "; "), ": ")}}
	}
	var worst, bad []string
	var completed, failed float64
	for _, it := range s.queues {
		q := it.it
		if q.Depth.Ready > 0 && q.Workers == 0 {
			worst = append(worst, fmt.Sprintf("queue %s has %d ready jobs and no live worker", q.Name, q.Depth.Ready))
		}
		if q.Paused {
			bad = append(bad, strings.TrimSuffix(fmt.Sprintf("queue %s is paused: %s", q.Name, q.PausedReason), ": "))
		}
		if q.OldestReady != nil && q.Depth.Ready > 0 && *q.OldestReady > latencyTarget.Seconds() {
			bad = append(bad, fmt.Sprintf("the oldest ready job of queue %s waits %s", q.Name, q.oldest()))
		}
		completed += q.PerMinute.Completed * recently.Minutes()
		failed += q.PerMinute.Failed * recently.Minutes()
	}
	if !slices.ContainsFunc(s.workers, func(w item[wireWorker]) bool { return w.it.Leader }) {
		worst = append(worst, "nobody does the upkeep: lost and scheduled jobs stay where they are")
	}
	if runs := completed + failed; runs >= failureRuns && failed/runs > failureShare {
		bad = append(bad, fmt.Sprintf("%.0f%% of %.0f runs failed in 5 min", 100*failed/runs, runs))
	}
	for _, d := range s.newest {
		if at := d.it.DiedAt; at != nil && time.Since(*at) < recently {
			bad = append(bad, fmt.Sprintf("a job died %s (%s)", ago(at), oneLine(d.it.Type+" / "+d.it.Error.text(), 80)))
		}
	}
	switch {
	case len(worst) > 0:
		return verdict{critical, append(worst, bad...)}
	case len(bad) > 0:
		return verdict{degraded, bad}
	}
	return verdict{healthy, []string{"work flows"}}
}

// fleet counts the workers that live and run jobs, and their slots. One without
// slots does the upkeep alone.
func fleet(workers []item[wireWorker]) (live int, busy, slots int64) {
	for _, w := range workers {
		if w.it.Slots.Total > 0 && slices.Contains([]string{"live", "late", "draining"}, w.it.Status) {
			live++
			busy += w.it.Slots.Busy
			slots += w.it.Slots.Total
		}
	}
	return live, busy, slots
}

func dead(queues []item[wireQueue]) int64 {
	var n int64
	for _, q := range queues {
		n += q.it.Depth.Dead
	}
	return n
}
