package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// upkeep asks whether somebody leads, and whether the reaper has been by.
func (v *visit) upkeep(ctx context.Context) (Check, error) {
	leader, err := v.read.Leader(ctx)
	if err != nil {
		return Check{}, err
	}
	tasks, err := v.read.Tasks(ctx)
	if err != nil {
		return Check{}, err
	}
	return judgeUpkeep(leader, tasks, v.ReaperInterval)
}

func judgeUpkeep(leader *inspect.Leader, tasks []inspect.Task, interval time.Duration) (Check, error) {
	const harm = "lost jobs stay where they are and scheduled ones do not start"
	const start = "Start a server or a worker on this database; each can do the upkeep."
	switch {
	case leader == nil:
		return warning(start, "no server or worker has ever run on this database")
	case !leader.Live:
		return problem(start, "nobody leads since %s, when %s did: %s", leader.ExpiresAt.Format(time.RFC3339), orWord(leader.WorkerName, "a worker"), harm)
	}
	i := slices.IndexFunc(tasks, func(t inspect.Task) bool { return t.Name == "reaper" && !t.LastSuccessAt.IsZero() })
	if i < 0 {
		if time.Since(leader.AcquiredAt) < 3*interval {
			return ok("%s leads, and has just begun", leader.WorkerName)
		}
		return problem("Look for \"database call failed\" in the log of "+leader.WorkerName+".", "%s leads, but its reaper has never succeeded: %s", leader.WorkerName, harm)
	}
	if age := tasks[i].Age; age > 3*interval {
		return problem("Look for \"database call failed\" in the log of "+leader.WorkerName+". If REAPER_INTERVAL is longer there, give jobctl the same.",
			"%s leads, but its reaper last succeeded %s ago, with an interval of %s: %s", leader.WorkerName, age.Round(time.Second), interval, harm)
	}
	return ok("%s leads; its reaper was by %s ago", leader.WorkerName, tasks[i].Age.Round(time.Second))
}
