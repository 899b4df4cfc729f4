package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// jobFormMax is what the form of a new job may take: the largest payload an
// installation may allow is bounded by the API, a page by this.
const jobFormMax = 4 << 20

func (k *Console) newJob(c echo.Context) error {
	q, err := query(c, "from", "type", "queue")
	if err != nil {
		return err
	}
	form := views.JobForm{Type: q.Get("type"), Queue: q.Get("queue"), Payload: "{}", Priority: "1"}
	if from := q.Get("from"); from != "" {
		id, err := parseID(from)
		if err != nil {
			return notFound("No job has the id " + quoted(from) + ".")
		}
		if form, err = k.copyOf(c, id); err != nil {
			return err
		}
	}
	return k.newJobPage(c, http.StatusOK, form, nil)
}

// copyOf fills the form in from a job. Masked values stay masked: what is sent back
// unchanged is put in again from the job itself.
func (k *Console) copyOf(c echo.Context, id engine.ID) (views.JobForm, error) {
	j, err := k.readOwn(c, id)
	if err != nil {
		return views.JobForm{}, err
	}
	payload, err := maskJSON(j.Payload, k.mask)
	if err != nil {
		return views.JobForm{}, err
	}
	return views.JobForm{
		Type: j.Type, Queue: j.Queue, Payload: strings.TrimSpace(string(payload)), Priority: strconv.Itoa(int(j.Priority)),
		MaxAttempts: strconv.Itoa(j.MaxAttempts), Tags: joined(j.Tags), CopiedFrom: id.String(), CallbackURL: callbackURL(j),
	}, nil
}

func callbackURL(j inspect.Job) string {
	if j.Callback == nil {
		return ""
	}
	return j.Callback.URL
}

func (k *Console) newJobPage(c echo.Context, status int, form views.JobForm, problems []views.Problem) error {
	v := k.visit(c)
	m := views.NewJob{Frame: v.frame("New job", "jobs", false), Fields: form, Problems: problems, Command: curlOf(form)}
	if v.figures != nil {
		m.Queues, m.Types = v.figures.queueNames(), v.figures.typeNames()
	}
	if id, err := parseID(form.CopiedFrom); err == nil {
		m.CopiedFrom = views.Link{Text: shortID(id), Href: k.url("/jobs/" + id.String())}
	}
	return v.render(status, views.NewJobPage(m))
}

// curlOf is the same by the API, quoted for a shell.
func curlOf(f views.JobForm) string {
	body := map[string]any{"type": orWord(f.Type, "email")}
	if f.Queue != "" {
		body["queue"] = f.Queue
	}
	if n, err := strconv.Atoi(f.Priority); err == nil && n != 1 {
		body["priority"] = n
	}
	if payload, err := decodeJSON([]byte(f.Payload)); err == nil {
		body["payload"] = payload
	}
	if f.CallbackURL != "" {
		body["callback_url"] = f.CallbackURL
	}
	b, err := encodeJSON(body)
	if err != nil {
		return ""
	}
	return "curl -X POST http://127.0.0.1:8080/api/v1/jobs \\\n  -H 'Content-Type: application/json' \\\n  -d '" +
		strings.ReplaceAll(strings.TrimSpace(string(b)), "'", `'\''`) + "'"
}

func orWord(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// enqueue adds a job. What is refused comes back in its field, all else as it was
// typed.
func (k *Console) enqueue(c echo.Context) error {
	values, err := k.form(c, jobFormMax)
	if err != nil {
		return err
	}
	f := formOf(values)
	args, o, problems := f.read()
	if err := k.mayName(c, orWord(o.Queue, engine.DefaultQueue), ""); err != nil {
		return err
	}
	if o.CopiedFrom != uuid.Nil && k.caller(c).Limited() {
		if _, err := k.readOwn(c, o.CopiedFrom); err != nil {
			return err
		}
	}
	if len(problems) == 0 && f.CopiedFrom != "" {
		if args.Payload, err = k.unmasked(c, f.CopiedFrom, args.Payload); err != nil {
			return err
		}
	}
	var done engine.Enqueued
	if len(problems) == 0 {
		done, err = k.Engine.Enqueue(c.Request().Context(), args, o)
		if problems = problemsOf(err); err != nil && len(problems) == 0 {
			return err
		}
	}
	if len(problems) > 0 {
		return k.newJobPage(c, http.StatusUnprocessableEntity, views.JobForm(f), problems)
	}
	n := note{Did: "enqueue", ID: done.ID.String(), Type: done.Type}
	if done.Duplicate {
		n.Did = "repeat"
	} else {
		k.Log.InfoContext(c.Request().Context(), engine.LogOperatorAction, "actor", k.caller(c).Name, "action", "enqueue", "target", done.ID.String())
	}
	k.board.expire()
	k.leave(c, n)
	return c.Redirect(http.StatusSeeOther, k.url("/jobs/"+done.ID.String()))
}

type jobForm views.JobForm

func formOf(values url.Values) jobForm {
	field := func(name string) string { return strings.TrimSpace(strings.ToValidUTF8(values.Get(name), "\ufffd")) }
	return jobForm{
		Type: field("type"), Queue: field("queue"), Payload: values.Get("payload"), Priority: field("priority"), RunAt: field("run_at"),
		MaxAttempts: field("max_attempts"), Key: field("key"), Tags: field("tags"), CopiedFrom: field("copied_from"),
		CallbackURL: field("callback_url"),
	}
}

// read turns fields into options. Limits are the engine's to judge; here a field
// must only be what it is called.
func (f jobForm) read() (args engine.RawArgs, o engine.EnqueueOptions, problems []views.Problem) {
	refuse := func(field, text string) { problems = append(problems, views.Problem{Field: field, Text: text}) }
	args = engine.RawArgs{Type: f.Type, Payload: json.RawMessage(f.Payload)}
	o = engine.EnqueueOptions{Queue: f.Queue, IdempotencyKey: f.Key, CallbackURL: f.CallbackURL}
	if f.Type == "" {
		refuse("type", "say which")
	}
	switch {
	case strings.TrimSpace(f.Payload) == "":
		args.Payload = nil
	case !utf8.ValidString(f.Payload):
		refuse("payload", "not UTF-8")
	default:
		if text := jsonProblem(f.Payload); text != "" {
			refuse("payload", text)
		}
	}
	if f.Priority != "" {
		p, err := engine.ParsePriority(f.Priority)
		if err != nil {
			refuse("priority", "low, default, high, critical, or 0 to 5")
		}
		o.Priority = &p
	}
	if f.MaxAttempts != "" {
		n, err := strconv.Atoi(f.MaxAttempts)
		if err != nil || n == 0 {
			refuse("max_attempts", "a whole number, 1 to 100")
		}
		o.MaxAttempts = n
	}
	if f.RunAt != "" {
		t, ok := parseInstant(f.RunAt)
		if !ok || t.Year() < 1970 { // the zero instant would mean none
			refuse("run_at", "an instant as 2026-12-01T06:00:00Z; without a zone it is UTC")
		}
		o.ScheduledAt = t
	}
	for _, t := range strings.Split(f.Tags, ",") {
		if t = strings.TrimSpace(t); t != "" && !slices.Contains(o.Tags, t) {
			o.Tags = append(o.Tags, t)
		}
	}
	if f.CopiedFrom != "" {
		id, err := parseID(f.CopiedFrom)
		if err != nil {
			refuse("copied_from", "no job id")
		}
		o.CopiedFrom = id
	}
	return args, o, problems
}

// jsonProblem says where a text stops being one JSON object.
func jsonProblem(s string) string {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line, column := position(s, syntax.Offset)
			return "not JSON at line " + strconv.Itoa(line) + ", column " + strconv.Itoa(column) + ": " + syntax.Error()
		}
		return "not JSON: it ends too early"
	}
	if _, ok := value.(map[string]any); !ok {
		return "a JSON object, {…}"
	}
	if d.More() {
		return "one JSON object; more follows it"
	}
	return ""
}

func position(s string, offset int64) (line, column int) {
	before := s[:min(max(int(offset)-1, 0), len(s))]
	line = 1 + strings.Count(before, "\n")
	return line, utf8.RuneCountInString(before[strings.LastIndex(before, "\n")+1:]) + 1
}

// parseInstant takes RFC 3339, and what a date field of a browser gives, in UTC.
func parseInstant(s string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// problemsOf puts what the engine refused into the fields of the form; none for an
// error that is about no field.
func problemsOf(err error) []views.Problem {
	var invalid *engine.ValidationError
	var reused *engine.KeyReusedError
	switch {
	case errors.As(err, &invalid):
		var list []views.Problem
		for _, f := range invalid.Fields {
			steps := f.Path()
			field, text := steps[0], f.Detail
			if len(steps) > 1 {
				text = cut(printable(strings.Join(steps[1:], ".")), 100) + ": " + text
			}
			switch field {
			case "idempotency_key":
				field = "key"
			case "delay_seconds":
				field = "run_at"
			}
			list = append(list, views.Problem{Field: field, Text: text})
		}
		return list
	case errors.As(err, &reused):
		return []views.Problem{{Field: "key", Text: "used before with other content, by job " + reused.Holder.String()}}
	case errors.Is(err, engine.ErrKeyInFlight):
		return []views.Problem{{Field: "key", Text: "another call holds it and has not finished; try again"}}
	}
	return nil
}

// unmasked puts the values back that the form showed masked.
func (k *Console) unmasked(c echo.Context, from string, payload json.RawMessage) (json.RawMessage, error) {
	id, err := parseID(from)
	if err != nil || id == uuid.Nil || !strings.Contains(string(payload), maskText) {
		return payload, nil
	}
	j, err := k.readOwn(c, id)
	if err != nil {
		return nil, err
	}
	value, err := decodeJSON(payload)
	if err != nil {
		return nil, err
	}
	old, err := decodeJSON(j.Payload)
	if err != nil {
		return nil, err
	}
	return encodeJSON(unmask(value, old, k.mask))
}
