package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// payload is the download: whole, its masked values left out like on the page.
func (k *Console) payload(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	id, err := jobID(c)
	if err != nil {
		return err
	}
	j, err := k.Read.Job(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return k.download(c, "job-"+id.String()+"-payload.json", j.Payload)
}

func (k *Console) result(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	id, err := jobID(c)
	if err != nil {
		return err
	}
	r, err := k.Read.Result(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return k.download(c, "job-"+id.String()+"-result.json", r.JSON)
}

// confirmReveal asks why somebody wants to see what is masked.
func (k *Console) confirmReveal(c echo.Context) error {
	return k.askReveal(c, views.ReasonField{}, http.StatusOK)
}

func (k *Console) askReveal(c echo.Context, reason views.ReasonField, status int) error {
	id, v, job, err := k.asked(c)
	if err != nil {
		return err
	}
	m := v.confirm(job, "Reveal the payload of job "+shortID(id)+"?", "jobs")
	m.Act = views.Action{
		Kind: "reveal", Text: "Reveal payload", Href: k.url("/jobs/" + id.String() + "/reveal"), Post: true, Fields: []views.Field{versionField(job)},
	}
	m.Keep.Text = "Keep it masked"
	m.Reason = reason
	m.Reason.Ask, m.Reason.Required = true, true
	m.Note = "The next page shows it whole, this once. That you looked, and why, stands in the audit trail."
	return v.askWith(status, m)
}

// reveal answers with the job's page itself, its payload whole: the address stays
// that of the form, so that the page cannot be linked to, and it does not follow.
func (k *Console) reveal(c echo.Context) error {
	id, err := jobID(c)
	if err != nil {
		return err
	}
	form, err := k.form(c, smallForm)
	if err != nil {
		return err
	}
	reason := strings.TrimSpace(form.Get("reason"))
	switch {
	case reason == "":
		return k.askReveal(c, views.ReasonField{Problem: "Say why: it stands in the audit trail."}, http.StatusUnprocessableEntity)
	case !validReason(reason):
		return k.askReveal(c, views.ReasonField{Value: reason, Problem: "At most 500 characters of plain text."}, http.StatusUnprocessableEntity)
	}
	actor := k.actor(c, reason)
	if actor.Version, err = seen(form); err != nil {
		return err
	}
	if actor.Version == 0 {
		actor.Version = seenJob(c)
	}
	payload, err := k.Engine.Reveal(c.Request().Context(), id, actor)
	var state *engine.StateError
	switch {
	case errors.As(err, &state):
		k.Acts.OperatorAction("reveal", "refused")
		return k.conflict(c, id, state)
	case err != nil:
		return err
	}
	k.Acts.OperatorAction("reveal", "done")
	d, err := k.dossier(c, id)
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := v.jobOf(d)
	m.Frame.Path, m.Frame.Live = k.url("/jobs/"+id.String()), views.Live{}
	m.Payload = views.NewJSON(payload, nil)
	m.Notices = append([]views.Notice{{
		State: views.StateLate, Title: "The payload below is shown whole, on this page alone.", Text: text("That you looked stands under Activity. The download stays masked."),
	}}, m.Notices...)
	return v.render(http.StatusOK, views.JobPage(m))
}

// download is a file, never a page: it holds what somebody else wrote.
func (k *Console) download(c echo.Context, name string, raw json.RawMessage) error {
	body, err := maskJSON(raw, k.mask)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentDisposition, mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set(echo.HeaderContentSecurityPolicy, "default-src 'none'; sandbox")
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, body)
}

const maskText = "••••••••"

// maskJSON writes a document without the values of masked keys, numbers digit for
// digit.
func maskJSON(raw json.RawMessage, masked func(string) bool) ([]byte, error) {
	value, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	return encodeJSON(masking(value, masked))
}

func decodeJSON(raw []byte) (any, error) {
	if len(raw) == 0 {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	err := d.Decode(&value)
	return value, err
}

func encodeJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func masking(value any, masked func(string) bool) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			if masked(key) {
				out[key] = maskText
				continue
			}
			out[key] = masking(item, masked)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = masking(item, masked)
		}
		return out
	}
	return value
}

// unmask puts what from holds where value still has the mask, so that a copy of a
// job carries what the form could not show.
func unmask(value, from any, masked func(string) bool) any {
	switch v := value.(type) {
	case map[string]any:
		old, _ := from.(map[string]any)
		for key, item := range v {
			if masked(key) && item == maskText {
				if was, ok := old[key]; ok {
					v[key] = was
				}
				continue
			}
			v[key] = unmask(item, old[key], masked)
		}
	case []any:
		old, _ := from.([]any)
		for i, item := range v {
			var was any
			if i < len(old) {
				was = old[i]
			}
			v[i] = unmask(item, was, masked)
		}
	}
	return value
}
