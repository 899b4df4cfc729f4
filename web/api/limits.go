package api

import (
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// A token may be limited to queues. The rules, which every handler keeps:
//
//   - A queue that a request names and the token lacks is 403, which tells the
//     token's own. So is what tells of every queue at once: the audit trail.
//   - A job, dead letter or operation in another queue is 404, as if it were not
//     there.
//   - Lists of jobs and dead letters, and the selection of an operation, must name a
//     queue: 403 says so. These go by one queue at a time, so that a page costs no
//     more than it does for others.
//   - Lists of queues, workers and operations leave out the others. A page of
//     operations may so be shorter than its limit, and still go on.

// nameQueue is how a list goes by one queue.
const nameQueue = "Give queue=."

// mayName is nil if the caller may touch a queue that the request names, the empty
// name standing for all. how says how to name one.
func mayName(c echo.Context, queue, how string) error {
	p := auth.Caller(c)
	switch {
	case !p.Limited() || queue != "" && p.MayTouch(queue):
		return nil
	case queue == "":
		return p.LimitedTo(how)
	}
	return p.LimitedTo("Queue " + cut(queue) + " is another's.")
}

// byQueue is for lists that go by one queue. It looks before the handler does, so
// that no other way to filter leads around it.
func byQueue(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := mayName(c, c.QueryParam("queue"), nameQueue); err != nil {
			return err
		}
		return next(c)
	}
}

// mayEnqueue is nil if the caller may enqueue so. The holder of a unique key that
// counts beyond one queue would be told of, or replaced, wherever it is.
func mayEnqueue(c echo.Context, o engine.EnqueueOptions) error {
	queue := o.Queue
	if queue == "" {
		queue = engine.DefaultQueue
	}
	if err := mayName(c, queue, ""); err != nil {
		return err
	}
	if p := auth.Caller(c); p.Limited() && o.Unique.Key != "" && o.Unique.Scope != engine.UniqueByQueue {
		return p.LimitedTo(`A unique key may be held in another queue: give unique the scope "queue".`)
	}
	return nil
}

// own is nil if the caller may touch a job. version is the job's as it was looked
// at, for an act that must not find it in another queue; 0 for callers without
// limits, who are not looked at. Error: [engine.ErrJobNotFound].
func (a *API) own(c echo.Context, id engine.ID) (version int, err error) {
	p := auth.Caller(c)
	if !p.Limited() {
		return 0, nil
	}
	job, err := a.Read.Job(c.Request().Context(), id)
	if err == nil && !p.MayTouch(job.Queue) {
		err = engine.ErrJobNotFound
	}
	return job.Version, err
}

// ownJobID reads the id of a path, of a job that the caller may touch. Error:
// [engine.ErrJobNotFound].
func (a *API) ownJobID(c echo.Context) (engine.ID, error) {
	id, err := jobID(c)
	if err == nil {
		_, err = a.own(c, id)
	}
	return id, err
}

// mayTouchOperation tells whether the caller may touch an operation: its jobs are
// in one queue, and that is theirs.
func mayTouchOperation(c echo.Context, o engine.Operation) bool {
	p := auth.Caller(c)
	return !p.Limited() || o.Select.Queue != "" && p.MayTouch(o.Select.Queue)
}

// ownOperation reads an operation that the caller may touch. Error:
// [engine.ErrOperationNotFound].
func (a *API) ownOperation(c echo.Context, id engine.ID) (engine.Operation, error) {
	o, err := a.Engine.Operation(c.Request().Context(), id)
	if err == nil && !mayTouchOperation(c, o) {
		err = engine.ErrOperationNotFound
	}
	return o, err
}

// ownQueues are those of a worker's that the caller may know of; ok is false if the
// worker serves none of theirs. No queues are all.
func ownQueues(c echo.Context, queues []string) (own []string, ok bool) {
	p := auth.Caller(c)
	if !p.Limited() {
		return queues, true
	}
	if len(queues) == 0 {
		return p.Queues, true
	}
	for _, q := range queues {
		if p.MayTouch(q) {
			own = append(own, q)
		}
	}
	return slices.Clip(own), len(own) > 0
}
