package api

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

func (a *API) listQueues(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	queues, err := a.Read.Queues(c.Request().Context())
	if err != nil {
		return err
	}
	out := listJSON[queueJSON]{Data: make([]queueJSON, 0, len(queues))}
	for _, q := range queues {
		if auth.Caller(c).MayTouch(q.Name) {
			out.Data = append(out.Data, queueOf(q))
		}
	}
	return answer(c, http.StatusOK, out)
}

func (a *API) getQueue(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	name := c.Param("name")
	if c.Request().URL.RawPath != "" { // the router hands parameters on as they were sent
		var err error
		if name, err = url.PathUnescape(name); err != nil {
			return inspect.ErrQueueNotFound
		}
	}
	if err := mayName(c, name, nameQueue); err != nil {
		return err
	}
	q, err := a.Read.Queue(c.Request().Context(), name)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, queueOf(q))
}

func (a *API) listWorkers(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	workers, err := a.Read.Workers(ctx)
	if err != nil {
		return err
	}
	leader, err := a.Read.Leader(ctx)
	if err != nil {
		return err
	}
	out := listJSON[workerJSON]{Data: make([]workerJSON, 0, len(workers))}
	for _, w := range workers {
		var ok bool
		if w.Queues, ok = ownQueues(c, w.Queues); ok {
			out.Data = append(out.Data, workerOf(w, leader))
		}
	}
	return answer(c, http.StatusOK, out)
}
