package console

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/views"
)

const flashCookie = "console_flash"

// note is what an act leaves for the next page, in a cookie that lives for a
// minute: the server keeps nothing. It says what happened to which job; the words
// are made when it is shown, so that a cookie from elsewhere can say nothing new.
type note struct {
	Did  string `json:"d"`           // replay, discard, restore, cancel, stop, enqueue, repeat, or one of accessDone
	ID   string `json:"i"`           // of the job; of an act on access, the name of the person or token
	Type string `json:"t,omitempty"` // of the job
	At   int64  `json:"a,omitempty"` // of a stop request, in Unix seconds
}

func (k *Console) leave(c echo.Context, n note) {
	b, err := json.Marshal(n)
	if err != nil {
		return // strings and a number always marshal
	}
	c.SetCookie(&http.Cookie{
		Name: flashCookie, Value: base64.RawURLEncoding.EncodeToString(b), Path: k.Base + "/", MaxAge: 60, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: c.IsTLS(),
	})
}

// takeFlash reads what the last act left, once. A live region leaves it for the
// page.
func (v *visit) takeFlash() *views.Flash {
	if isFragment(v) {
		return nil
	}
	got, err := v.Cookie(flashCookie)
	if err != nil {
		return nil
	}
	v.SetCookie(&http.Cookie{Name: flashCookie, Path: v.k.Base + "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: v.IsTLS()})
	b, err := base64.RawURLEncoding.DecodeString(got.Value)
	if err != nil || len(b) > 1000 {
		return nil
	}
	var n note
	if json.Unmarshal(b, &n) != nil {
		return nil
	}
	return v.k.flashOf(n)
}

// flashOf words a note; nil for one that says nothing.
func (k *Console) flashOf(n note) *views.Flash {
	if f := k.accessFlash(n); f != nil {
		return f
	}
	id, err := parseID(n.ID)
	if err != nil || !plain(n.Type) {
		return nil
	}
	short := shortID(id)
	job := views.Span{Text: strings.TrimSpace(n.Type + " " + short), Href: k.url("/jobs/" + id.String())}
	undo := &views.Action{Kind: "undo", Text: "Undo", Label: "Undo: restore job " + short, Href: k.url("/dlq/" + id.String() + "/restore"), Post: true}
	switch n.Did {
	case "replay":
		return &views.Flash{Text: []views.Span{job, {Text: "was replayed and is ready again."}}}
	case "discard":
		return &views.Flash{Text: []views.Span{job, {Text: "was discarded. It can be restored for 7 days."}}, Undo: undo}
	case "restore":
		return &views.Flash{Text: []views.Span{job, {Text: "was restored to the dead letters."}}}
	case "cancel":
		return &views.Flash{Text: []views.Span{job, {Text: "was cancelled."}}}
	case "run_now":
		return &views.Flash{Text: []views.Span{job, {Text: "is due now."}}}
	case "stop":
		when := "."
		if n.At > 0 {
			when = " " + time.Unix(n.At, 0).UTC().Format(time.TimeOnly) + " UTC."
		}
		return &views.Flash{Text: []views.Span{job, {Text: "Stop requested" + when}}}
	case "enqueue":
		return &views.Flash{Text: []views.Span{job, {Text: "was enqueued."}}}
	case "repeat":
		return &views.Flash{Text: []views.Span{job, {Text: "was enqueued before with this key; nothing was added."}}}
	}
	return nil
}
