package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

const (
	maxBulkJobs  = 1000
	maxBulkBytes = 4 << 20
	// bulkDepth lets each job's own limit speak first.
	bulkDepth = 200
	// maxFlaws bounds what an answer complains of.
	maxFlaws = 100
)

var bulkFields = []string{"jobs", "atomic"}

// bulkRequest is an enqueue of many.
type bulkRequest struct {
	enqueueRequest // for its ways to read a value

	jobs   []*enqueueRequest
	atomic bool
}

// createMany enqueues up to 1,000 jobs in one transaction: all or none, or, with
// atomic false, those that are accepted.
func (a *API) createMany(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	body, err := readBody(c, maxBulkBytes, fmt.Sprintf("A body may have %d bytes, and %d jobs.", maxBulkBytes, maxBulkJobs))
	if err != nil {
		return err
	}
	q, err := readBulk(body)
	if err != nil {
		return err
	}
	key, err := idempotencyHeader(c)
	switch {
	case err != nil:
		return err
	case key != "" && !q.atomic:
		return refuseKey("conflict", "with atomic false each job has a key of its own: idempotency_key")
	}
	if err := a.Charge(c, len(q.jobs)-1); err != nil {
		return err
	}
	for _, job := range q.jobs {
		if err := mayEnqueue(c, job.options); err != nil {
			return err
		}
		job.traceContext(c)
	}
	if q.atomic {
		return a.enqueueAll(c, key, q.jobs)
	}
	return a.enqueueEach(c, q.jobs)
}

// readBulk takes the jobs apart. What is wrong with one of them stays with it.
func readBulk(body []byte) (*bulkRequest, error) {
	members, err := objectWithin(body, bulkDepth)
	if err != nil {
		return nil, err
	}
	q, given := &bulkRequest{atomic: true}, false
	for _, m := range members {
		switch m.name {
		case "jobs":
			given = true
			q.items(m)
		case "atomic":
			q.atomic = q.flag(m)
		default:
			q.refuse(m.at, "unknown-field", unknown(m.name, bulkFields))
		}
	}
	if !given {
		q.refuse("/jobs", "required", "1 to 1000 jobs")
	}
	if len(q.bad) > 0 {
		return nil, flawed(q.bad...)
	}
	return q, nil
}

// items reads one job after the other and stops at the first too many.
func (q *bulkRequest) items(m member) {
	d := json.NewDecoder(bytes.NewReader(m.value))
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		q.refuse(m.at, "invalid", "an array of jobs")
		return
	}
	for d.More() {
		if len(q.jobs) == maxBulkJobs {
			q.refuse(m.at, "too-many", "at most 1000 jobs")
			return
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			q.refuse(m.at, "invalid", "an array of jobs")
			return
		}
		q.jobs = append(q.jobs, readItem(raw, m.at+"/"+strconv.Itoa(len(q.jobs))))
	}
	if len(q.jobs) == 0 {
		q.refuse(m.at, "required", "1 to 1000 jobs")
	}
}

// readItem is readEnqueue for a job that stands at a place of a larger body.
func readItem(raw []byte, place string) *enqueueRequest {
	job, err := readEnqueue(raw)
	var bad *RequestError
	if errors.As(err, &bad) {
		job = &enqueueRequest{given: map[string]bool{}, bad: bad.Flaws}
	}
	for i, f := range inOrder(job.bad) {
		job.bad[i] = flaw(place+*f.Pointer, f.Code, f.Detail)
	}
	return job
}

func (a *API) enqueueAll(c echo.Context, key string, jobs []*enqueueRequest) error {
	var bad []Flaw
	items := make([]engine.EnqueueItem, len(jobs))
	for i, job := range jobs {
		bad = append(bad, job.bad...)
		items[i] = engine.EnqueueItem{Args: job.args, Options: job.options}
	}
	if len(bad) > 0 {
		return flawedMany(bad)
	}
	done, replayed, err := a.Engine.EnqueueManyOnce(c.Request().Context(), key, items)
	if err != nil {
		for i, job := range jobs {
			err = job.asGiven("items."+strconv.Itoa(i)+".", err)
		}
		return bulkError(err)
	}
	out, status := manyJSON{Jobs: make([]enqueuedJSON, len(done))}, http.StatusOK
	for i, d := range done {
		out.Jobs[i] = enqueuedOf(d)
		if !d.Duplicate && d.Unique == "" {
			status = http.StatusCreated
		}
	}
	if replayed {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	return answer(c, status, out)
}

// flawedMany keeps an answer about many jobs short.
func flawedMany(bad []Flaw) *RequestError {
	e := flawed(bad...)
	if len(bad) > maxFlaws {
		e.Flaws = bad[:maxFlaws]
		e.Detail += fmt.Sprintf(" These are the first %d.", maxFlaws)
	}
	return e
}

// bulkError says of an engine's error where in the body it is.
func bulkError(err error) error {
	var invalid *engine.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	if detail, found := fieldOf(invalid, "idempotency_key"); found {
		return refuseKey(detail.Code, detail.Detail)
	}
	fields := make([]engine.FieldError, len(invalid.Fields))
	for i, f := range invalid.Fields {
		f.Field = "jobs" + strings.TrimPrefix(f.Field, "items")
		fields[i] = f
	}
	return flawedMany(FieldsError(fields).Flaws)
}

func fieldOf(e *engine.ValidationError, name string) (engine.FieldError, bool) {
	for _, f := range e.Fields {
		if f.Field == name {
			return f, true
		}
	}
	return engine.FieldError{}, false
}

// ItemFlaw says which job of many met a conflict, and by which of its fields.
func ItemFlaw(e *engine.ItemError, code, detail string) Flaw {
	field := "/unique/key"
	var reused *engine.KeyReusedError
	if errors.As(e.Err, &reused) || errors.Is(e.Err, engine.ErrKeyInFlight) {
		field = "/idempotency_key"
	}
	return flaw("/jobs/"+strconv.Itoa(e.Index)+field, code, detail)
}

func (a *API) enqueueEach(c echo.Context, jobs []*enqueueRequest) error {
	out := eachJSON{Jobs: make([]eachItemJSON, len(jobs))}
	refuse := func(i int, err error) {
		out.Refused++
		out.Jobs[i].Status, out.Jobs[i].Problem = a.Problem(c, err)
	}
	var items []engine.EnqueueItem
	var place []int // has an item's job
	for i, job := range jobs {
		if len(job.bad) > 0 {
			refuse(i, flawedMany(job.bad))
			continue
		}
		items, place = append(items, engine.EnqueueItem{Args: job.args, Options: job.options}), append(place, i)
	}
	results, err := a.Engine.EnqueueEach(c.Request().Context(), items)
	if err != nil {
		return err
	}
	for n, r := range results {
		i := place[n]
		if r.Err != nil {
			refuse(i, itemError(jobs[i].asGiven("", r.Err), i))
			continue
		}
		job := enqueuedOf(r.Enqueued)
		out.Jobs[i] = eachItemJSON{Status: http.StatusCreated, Job: &job, Replayed: r.Duplicate}
		if r.Duplicate || r.Unique != "" {
			out.Jobs[i].Status = http.StatusOK
		}
	}
	return answer(c, http.StatusOK, out)
}

// itemError says of one job's error where in the body it is.
func itemError(err error, i int) error {
	var invalid *engine.ValidationError
	if !errors.As(err, &invalid) {
		return &engine.ItemError{Index: i, Err: err}
	}
	fields := make([]engine.FieldError, len(invalid.Fields))
	for n, f := range invalid.Fields {
		f.Field = "items." + strconv.Itoa(i) + "." + f.Field
		fields[n] = f
	}
	return bulkError(&engine.ValidationError{Fields: fields})
}
