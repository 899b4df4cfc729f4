package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// Place is where a job stands, finer than its state: a pending job is ready,
// scheduled or held.
type Place string

// The places.
const (
	PlaceReady     Place = "ready"
	PlaceScheduled Place = "scheduled"
	PlaceHeld      Place = "held"
	PlaceRunning   Place = "running"
	PlaceRetrying  Place = "retrying"
	PlaceCompleted Place = "completed"
	PlaceDead      Place = "dead"
	PlaceCancelled Place = "cancelled"
)

// Places lists every place in the order of a job's life.
var Places = []Place{PlaceReady, PlaceScheduled, PlaceHeld, PlaceRunning, PlaceRetrying, PlaceCompleted, PlaceDead, PlaceCancelled}

var stateOfPlace = map[Place]engine.State{
	PlaceReady: engine.StatePending, PlaceScheduled: engine.StatePending, PlaceHeld: engine.StatePending, PlaceRunning: engine.StateLeased,
	PlaceRetrying: engine.StateFailed, PlaceCompleted: engine.StateCompleted, PlaceDead: engine.StateDeadLetter,
	PlaceCancelled: engine.StateCancelled,
}

// Place tells where the job stands at an instant.
func (j *Job) Place(now time.Time) Place {
	switch j.State {
	case engine.StatePending:
		switch {
		case j.HeldReason != "":
			return PlaceHeld
		case j.ScheduledAt.After(now):
			return PlaceScheduled
		}
		return PlaceReady
	case engine.StateBlocked:
		return PlaceHeld
	case engine.StateLeased:
		return PlaceRunning
	case engine.StateFailed:
		return PlaceRetrying
	case engine.StateCompleted:
		return PlaceCompleted
	case engine.StateDeadLetter:
		return PlaceDead
	case engine.StateCancelled:
		return PlaceCancelled
	}
	return ""
}

// ListFilter chooses jobs as the console lists them. An empty Place asks for all;
// [PlaceDead] leaves out discarded dead letters. [JobFilter.States] and
// [JobFilter.Offset] are not used.
type ListFilter struct {
	JobFilter
	Place Place
}

const (
	consoleErrorMax = 200
)

// JobList lists jobs by descending id without their payloads, errors cut to 200
// characters.
func (r *Reader) JobList(ctx context.Context, f ListFilter) (JobPage, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	limit := clampLimit(f.Limit)
	if f.Before == uuid.Nil {
		f.Before = uuid.Max
	}
	found, err := r.findPlace(ctx, f, limit)
	if err != nil {
		return JobPage{}, fmt.Errorf("list jobs: %w", err)
	}
	page, ids := JobPage{Stopped: found.stopped}, found.ids
	switch {
	case len(ids) > limit:
		ids = ids[:limit]
		page.Next = ids[limit-1]
	case !found.done:
		page.Next = found.bottom
	}
	if page.Jobs, err = r.jobs(ctx, ids, 0, consoleErrorMax); err != nil {
		return JobPage{}, fmt.Errorf("list jobs: %w", err)
	}
	if want, ok := stateOfPlace[f.Place]; ok {
		// A job that moved on between the two reads is no longer what was asked for.
		page.Jobs = slices.DeleteFunc(page.Jobs, func(j Job) bool {
			return j.State != want || f.Place == PlaceDead && !j.DiscardedAt.IsZero()
		})
	}
	return page, nil
}

func (r *Reader) findPlace(ctx context.Context, f ListFilter, n int) (found, error) {
	list := r.q.ListReadyIDs
	switch f.Place {
	case PlaceReady:
	case PlaceScheduled:
		list = r.q.ListScheduledIDs
	case PlaceHeld:
		list = r.q.ListHeldIDs
	case "":
		return r.scan(ctx, f.JobFilter, n, "")
	case PlaceRunning, PlaceRetrying, PlaceCompleted, PlaceDead, PlaceCancelled:
		return r.findState(ctx, f.JobFilter, stateOfPlace[f.Place], n)
	}
	ids, err := list(ctx, r.pool, f.Before, filter(f.Type), filter(f.Queue), priorityFilter(f.Priority), int32(n+1))
	if err != nil {
		return found{}, err
	}
	if len(ids) > n {
		return found{ids: ids, bottom: ids[len(ids)-1]}, nil
	}
	return found{ids: ids, done: true}, nil
}

// NextReady reads the first jobs in line of a queue, in the order in which they
// will be claimed, at most limit of them.
func (r *Reader) NextReady(ctx context.Context, queue string, limit int) ([]Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ids, err := r.q.ListNextReadyIDs(ctx, r.pool, queue, int32(clampLimit(limit)))
	if err != nil {
		return nil, fmt.Errorf("list next jobs of queue %s: %w", queue, err)
	}
	jobs, err := r.jobs(ctx, ids, 0, consoleErrorMax)
	if err != nil {
		return nil, fmt.Errorf("list next jobs of queue %s: %w", queue, err)
	}
	slices.SortFunc(jobs, func(a, b Job) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	return jobs, nil
}
