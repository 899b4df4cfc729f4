package api

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

func (a *API) listQueues(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	queues, err := a.Read.Queues(c.Request().Context())
	if err != nil {
		return err
	}
	out := listJSON[queueJSON]{Data: make([]queueJSON, len(queues))}
	for i, q := range queues {
		out.Data[i] = queueOf(q)
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
	out := listJSON[workerJSON]{Data: make([]workerJSON, len(workers))}
	for i, w := range workers {
		out.Data[i] = workerOf(w, leader)
	}
	return answer(c, http.StatusOK, out)
}
