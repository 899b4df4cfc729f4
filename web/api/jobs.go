package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

func (a *API) createJob(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	body, err := a.body(c)
	if err != nil {
		return err
	}
	q, err := readEnqueue(body)
	if err != nil {
		return err
	}
	if len(q.bad) > 0 {
		return flawed(inOrder(q.bad)...)
	}
	if err := q.idempotencyKey(c); err != nil {
		return err
	}
	if err := mayEnqueue(c, q.options); err != nil {
		return err
	}
	q.traceContext(c)
	done, err := a.Engine.Enqueue(c.Request().Context(), q.args, q.options)
	if err != nil {
		return q.asGiven("", err)
	}
	h := c.Response().Header()
	h.Set(echo.HeaderLocation, "/api/v1/jobs/"+done.ID.String())
	if done.Duplicate {
		h.Set("Idempotency-Replayed", "true")
	}
	if done.Duplicate || done.Unique != "" {
		return answer(c, http.StatusOK, enqueuedOf(done))
	}
	return answer(c, http.StatusCreated, enqueuedOf(done))
}

// answer writes JSON. Answers are never kept by caches, since the next may differ.
func answer(c echo.Context, status int, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	h := c.Response().Header()
	if h.Get(echo.HeaderCacheControl) == "" {
		h.Set(echo.HeaderCacheControl, "no-store")
	}
	h.Set(echo.HeaderXContentTypeOptions, "nosniff")
	return c.Blob(status, echo.MIMEApplicationJSON, b)
}

func (a *API) listJobs(c echo.Context) error {
	if c.QueryParams().Has("q") {
		return a.searchJobs(c)
	}
	q := readQuery(c, "q", "status", "type", "queue", "priority", "limit", "page", "cursor")
	limit := q.number("limit", inspect.DefaultLimit, inspect.MaxLimit)
	page := q.number("page", 1, inspect.MaxOffset)
	if page*limit > inspect.MaxOffset {
		q.refuse("page", "out-of-range", "page times limit may be 10000; follow next_cursor instead")
	}
	if q.values.Has("page") && q.values.Has("cursor") {
		q.refuse("page", "conflict", "give cursor or page, not both")
	}
	cur, err := a.cursors.read(c.Request().Context(), q, "jobs")
	if err != nil {
		return err
	}
	f := inspect.JobFilter{
		States: q.states(), Type: q.text("type"), Queue: q.text("queue"), Priority: q.priority(),
		Before: cur.Before, Offset: (page - 1) * limit, Limit: limit,
	}
	if err := q.err(); err != nil {
		return err
	}
	found, err := a.Read.Jobs(c.Request().Context(), f)
	if err != nil {
		return err
	}
	out := listJSON[jobJSON]{Data: make([]jobJSON, len(found.Jobs)), Partial: found.Stopped}
	for i, j := range found.Jobs {
		out.Data[i] = jobOf(j)
	}
	if found.Next != uuid.Nil {
		if err := next(c, a.cursors, &out, cursor{Of: cur.Of, Before: found.Next}, q.values); err != nil {
			return err
		}
	}
	return answer(c, http.StatusOK, out)
}

// searchJobs lists jobs by the search language.
func (a *API) searchJobs(c echo.Context) error {
	q := readQuery(c, "q", "limit", "cursor")
	limit := q.number("limit", inspect.DefaultLimit, inspect.MaxLimit)
	cur, err := a.cursors.read(c.Request().Context(), q, "search")
	if err != nil {
		return err
	}
	asked := q.search("q", time.Now())
	if err := q.err(); err != nil {
		return err
	}
	found, err := a.Read.Search(c.Request().Context(), inspect.SearchFilter{Query: asked, Before: cur.Before, Limit: limit, Payloads: true})
	if err != nil {
		return err
	}
	out := listJSON[jobJSON]{Data: make([]jobJSON, len(found.Jobs)), Partial: found.Stopped, Query: asked.String()}
	for i, j := range found.Jobs {
		out.Data[i] = jobOf(j)
	}
	if found.Next != uuid.Nil {
		if found.Stopped {
			out.SearchedBackTo = stamp(inspect.TimeOf(found.Next))
		}
		if err := next(c, a.cursors, &out, cursor{Of: cur.Of, Before: found.Next}, q.values); err != nil {
			return err
		}
	}
	return answer(c, http.StatusOK, out)
}

// next says where a list goes on, in the body and as a link.
func next[T any](c echo.Context, cs *cursors, l *listJSON[T], at cursor, values url.Values) error {
	s, err := cs.write(c.Request().Context(), at)
	if err != nil {
		return err
	}
	l.NextCursor, l.HasMore = &s, true
	link := url.Values{}
	for name, v := range values {
		if name != "page" {
			link[name] = v
		}
	}
	link.Set("cursor", s)
	c.Response().Header().Set("Link", "<"+c.Path()+"?"+link.Encode()+`>; rel="next"`)
	return nil
}

func (a *API) getJob(c echo.Context) error {
	q := readQuery(c, "include")
	include := q.include("attempts", "logs", "result", "refused_writes")
	if err := q.err(); err != nil {
		return err
	}
	id, err := jobID(c)
	if err != nil {
		return err
	}
	job, err := a.Read.Job(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if !auth.Caller(c).MayTouch(job.Queue) {
		return engine.ErrJobNotFound
	}
	h := c.Response().Header()
	h.Set("ETag", etag(job, q.text("include")))
	h.Set(echo.HeaderCacheControl, "no-cache")
	if len(include) == 0 && c.Request().Header.Get("If-None-Match") != "" && named(c, "If-None-Match", h.Get("ETag")) {
		return c.NoContent(http.StatusNotModified)
	}
	out := jobOf(job)
	if include["attempts"] {
		list, err := a.Read.Attempts(c.Request().Context(), id)
		if err != nil {
			return err
		}
		out.Executions = attemptsOf(list)
	}
	if include["logs"] {
		list, err := a.Read.Logs(c.Request().Context(), id)
		if err != nil {
			return err
		}
		lines := linesOf(list)
		out.Logs = &lines
	}
	if include["refused_writes"] {
		list, err := a.Read.RefusedWrites(c.Request().Context(), id)
		if err != nil {
			return err
		}
		refused := refusedOf(list)
		out.RefusedWrites = &refused
	}
	if include["result"] {
		result, err := a.Read.Result(c.Request().Context(), id)
		if err != nil && !errors.Is(err, inspect.ErrNoResult) {
			return err
		}
		out.Result = result.JSON
	}
	return answer(c, http.StatusOK, out)
}

func (a *API) cancelJob(c echo.Context) error {
	return a.act(c, "cancel", a.Engine.Cancel)
}

// stopJob accepts a request, which the worker learns of with its next heartbeat. A
// job that was asked before is answered the same.
func (a *API) stopJob(c echo.Context) error {
	return a.actAnswering(c, http.StatusAccepted, "stop", a.Engine.RequestStop)
}

func (a *API) listLogs(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	id, err := a.ownJobID(c)
	if err != nil {
		return err
	}
	list, err := a.Read.Logs(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listJSON[lineJSON]{Data: linesOf(list)})
}

// actor is who acts, for the audit trail. jobctl speaks through this API too.
func (a *API) actor(c echo.Context, reason string) engine.Actor {
	source := "api"
	if strings.HasPrefix(c.Request().UserAgent(), "jobctl/") {
		source = "cli"
	}
	return engine.Actor{
		Name: auth.Caller(c).Name, Source: source, Reason: reason, RequestID: a.RequestID(c), Address: a.ClientAddress(c.Request()),
	}
}

func (a *API) listAttempts(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	id, err := a.ownJobID(c)
	if err != nil {
		return err
	}
	list, err := a.Read.Attempts(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listJSON[attemptJSON]{Data: attemptsOf(list)})
}

// file is a result that is a file, as the built-in reports keep theirs.
type file struct {
	ContentType string  `json:"content_type"`
	Filename    string  `json:"filename"`
	Encoding    string  `json:"encoding"`
	Data        *string `json:"data"`
}

// getResult is a download, never a page: a result holds what a handler wrote, so a
// browser must neither show nor guess it.
func (a *API) getResult(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	id, err := a.ownJobID(c)
	if err != nil {
		return err
	}
	result, err := a.Read.Result(c.Request().Context(), id)
	if err != nil {
		return err
	}
	name, kind, data := "job-"+id.String()+".json", echo.MIMEApplicationJSON, []byte(result.JSON)
	var f file
	if json.Unmarshal(result.JSON, &f) == nil && f.Data != nil {
		if content, ok := f.content(); ok {
			name, kind, data = f.name(name), f.kind(), content
		}
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentDisposition, mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set(echo.HeaderXContentTypeOptions, "nosniff")
	h.Set(echo.HeaderContentSecurityPolicy, "default-src 'none'; sandbox")
	h.Set(echo.HeaderCacheControl, "no-store")
	return c.Blob(http.StatusOK, kind, data)
}

func (f file) content() ([]byte, bool) {
	switch f.Encoding {
	case "base64":
		b, err := base64.StdEncoding.DecodeString(*f.Data)
		return b, err == nil
	case "", "utf-8":
		return []byte(*f.Data), true
	}
	return nil, false
}

// kind passes on a media type that parses; anything else is bytes.
func (f file) kind() string {
	kind, params, err := mime.ParseMediaType(f.ContentType)
	if err != nil {
		return echo.MIMEOctetStream
	}
	if s := mime.FormatMediaType(kind, params); s != "" {
		return s
	}
	return echo.MIMEOctetStream
}

// name is the file's own name without any folder, of letters that no system
// minds; def if nothing is left.
func (f file) name(def string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, path.Base(strings.ReplaceAll(f.Filename, `\`, "/")))
	clean = strings.TrimLeft(cut(clean), "._")
	if strings.Trim(clean, "_…") == "" {
		return def
	}
	return strings.TrimSuffix(clean, "…")
}
