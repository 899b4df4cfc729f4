package console

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// A person may be limited to queues. The rules are those of a token at the API:
//
//   - A page that tells of every queue at once, the trail and the system, is 403. So
//     is a queue that the address names and that is another's, and every route that
//     is not mounted by needMine.
//   - A job, dead letter, worker or operation of others is 404, as if it were not
//     there.
//   - Lists, counts and groups leave the others out; figures that are kept for the
//     installation alone are left out whole.
//   - An operation must name one of their queues.

// needMine is need for a route whose handler keeps to the queues of its caller.
func (k *Console) needMine(s auth.Scope, role string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !k.caller(c).May(s) {
				return &auth.Refusal{Code: "forbidden", Detail: "This needs the role " + role + "."}
			}
			return next(c)
		}
	}
}

// everyQueue refuses callers limited to queues.
func (k *Console) everyQueue(c echo.Context) error {
	if who := k.caller(c); who.Limited() {
		return who.LimitedTo("This page tells of every queue.")
	}
	return nil
}

const jobVersion = "job-version"

// ownJob is for routes of one job: one in another's queue is not there. An act must
// then find the job as it was looked at, or it may meanwhile be in another queue.
func (k *Console) ownJob(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !k.caller(c).Limited() {
			return next(c)
		}
		id, err := jobID(c)
		if err != nil {
			return err
		}
		job, err := k.readOwn(c, id)
		if err != nil {
			return err
		}
		c.Set(jobVersion, job.Version)
		return next(c)
	}
}

// seenJob is the version of the job that ownJob looked at; 0 if it did not.
func seenJob(c echo.Context) int {
	n, _ := c.Get(jobVersion).(int)
	return n
}

// readOwn reads a job that the caller may see. Error: [engine.ErrJobNotFound].
func (k *Console) readOwn(c echo.Context, id engine.ID) (inspect.Job, error) {
	job, err := k.Read.Job(c.Request().Context(), id)
	if err == nil && !k.caller(c).MayTouch(job.Queue) {
		return inspect.Job{}, engine.ErrJobNotFound
	}
	return job, err
}

// mayName is nil if the caller may touch a queue that the request names; the empty
// name stands for all.
func (k *Console) mayName(c echo.Context, queue, how string) error {
	who := k.caller(c)
	switch {
	case !who.Limited() || queue != "" && who.MayTouch(queue):
		return nil
	case queue == "":
		return who.LimitedTo(how)
	}
	return who.LimitedTo("Queue " + quoted(queue) + " is another's.")
}

// mayTouchOperation tells whether the caller may see and steer an operation: its
// jobs are in one queue, and that is theirs.
func (k *Console) mayTouchOperation(c echo.Context, o *engine.Operation) bool {
	who := k.caller(c)
	return !who.Limited() || o.Select.Queue != "" && who.MayTouch(o.Select.Queue)
}

// oneQueue is what an operation must be for one who is limited to queues.
const oneQueue = "Choose the jobs of one queue."

// ownOperation reads an operation that the caller may see.
func (k *Console) ownOperation(c echo.Context, id engine.ID) (engine.Operation, error) {
	o, err := k.Engine.Operation(c.Request().Context(), id)
	if errors.Is(err, engine.ErrOperationNotFound) || err == nil && !k.mayTouchOperation(c, &o) {
		return o, notFound("No operation has this id.")
	}
	return o, err
}

// ownSelections are a selection for one who may touch every queue, and else one for
// each of these queues that is theirs.
func (v *visit) ownSelections(s engine.Selection, queues []string) []engine.Selection {
	if !v.who.Limited() {
		return []engine.Selection{s}
	}
	var list []engine.Selection
	for _, q := range queues {
		if v.who.MayTouch(q) {
			s.Queue = q
			list = append(list, s)
		}
	}
	return list
}

// within is the query for jobs in the caller's queues alone.
func (v *visit) within(q search.Query) search.Query {
	if !v.who.Limited() {
		return q
	}
	own := search.Term{Name: "queue", Values: v.who.Queues, Text: "queue:" + strings.Join(v.who.Queues, ",")}
	return search.Query{Terms: append(slices.Clone(q.Terms), own)}
}

// readWorkers reads the workers that serve a queue of the caller's, with the queues that
// are theirs.
func (k *Console) readWorkers(ctx context.Context, who auth.Principal) ([]inspect.Worker, error) {
	list, err := k.Read.Workers(ctx)
	if err != nil || !who.Limited() {
		return list, err
	}
	own := make([]inspect.Worker, 0, len(list))
	for i := range list {
		if ownWorker(&list[i], who) {
			own = append(own, list[i])
		}
	}
	return own, nil
}

// ownWorker leaves a worker the queues that are the caller's, and tells whether
// there is one.
func ownWorker(w *inspect.Worker, who auth.Principal) bool {
	if !who.Limited() {
		return true
	}
	var own []string
	for _, q := range who.Queues {
		if serves(w, q) {
			own = append(own, q)
		}
	}
	w.Queues = own
	return len(own) > 0
}

// ownRuns leaves out the runs in others' queues.
func ownRuns(runs []inspect.Run, who auth.Principal) []inspect.Run {
	if !who.Limited() {
		return runs
	}
	return slices.DeleteFunc(runs, func(r inspect.Run) bool { return !who.MayTouch(r.Queue) })
}

// parts are figures by lists of queues, made as they are asked for.
type parts struct {
	mu   sync.Mutex
	made map[string]*figures
}

// of is what of the figures a caller may see. What is counted over all queues alone
// is left out: top errors, deaths within the hour, jobs enqueued by minute, the
// workers of the fleet, acts but those on queues.
func (f *figures) of(who auth.Principal) *figures {
	if f == nil || !who.Limited() {
		return f
	}
	key := strings.Join(who.Queues, ",")
	f.parts.mu.Lock()
	defer f.parts.mu.Unlock()
	if part := f.parts.made[key]; part != nil {
		return part
	}
	if f.parts.made == nil {
		f.parts.made = map[string]*figures{}
	}
	part := f.part(who)
	f.parts.made[key] = part
	return part
}

func (f *figures) part(who auth.Principal) *figures {
	snap, pulse := *f.snap, *f.pulse
	snap.Queues = kept(snap.Queues, func(q *inspect.Queue) bool { return who.MayTouch(q.Name) })
	snap.Dead = kept(snap.Dead, func(d *inspect.DeadCount) bool { return who.MayTouch(d.Queue) })
	snap.Fleet = inspect.Fleet{}
	pulse.Minutes = kept(pulse.Minutes, func(m *inspect.Minute) bool { return who.MayTouch(m.Queue) })
	pulse.Actions = kept(pulse.Actions, func(a *inspect.Action) bool { return a.TargetKind == "queue" && who.MayTouch(a.Target) })
	pulse.Failures, pulse.Deaths, pulse.Discarded = nil, inspect.Deaths{}, 0
	pulse.Jobs, pulse.Completed, pulse.Cancelled = 0, 0, 0
	pulse.Enqueued = make([]int64, len(pulse.Enqueued))
	for i := range pulse.Enqueued {
		pulse.Enqueued[i] = -1
	}
	pulse.Builds = slices.Clone(pulse.Builds)
	for i := range pulse.Builds {
		pulse.Builds[i].Names = nil
	}
	return &figures{at: f.at, snap: &snap, pulse: &pulse, stats: newStats(&pulse), limited: true}
}

// kept is a new list of what may stay.
func kept[T any](list []T, may func(*T) bool) []T {
	var out []T
	for i := range list {
		if may(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}
