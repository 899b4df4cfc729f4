package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// Tokens are those of programs.
type Tokens interface {
	List(ctx context.Context) ([]access.Token, error)
	Create(ctx context.Context, s access.TokenSpec, by engine.Actor) (secret string, made access.Token, err error)
	Revoke(ctx context.Context, id string, by engine.Actor) error
}

var _ Tokens = (*access.Tokens)(nil)

func (k *Console) tokens(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	list, err := k.Tokens.List(c.Request().Context())
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := views.Tokens{
		Frame: v.frame("Tokens", "access", false), Tabs: v.accessTabs("tokens"), Summary: plural(int64(len(list)), "token"),
		Actions: []views.Action{{Kind: "new", Text: "New token", Href: k.url("/access/new-token"), Main: true}},
		Empty:   &views.Empty{Title: "There is no token yet.", Text: "A program that calls the API needs one. It is shown once, when it is made."},
	}
	for i := range list {
		m.Rows = append(m.Rows, v.tokenRow(&list[i]))
	}
	return v.render(http.StatusOK, views.TokensPage(m))
}

func (v *visit) tokenRow(t *access.Token) views.TokenRow {
	r := views.TokenRow{
		ID: t.ID, Name: t.Name, State: views.StateActive, Scopes: scopesText(t.Scopes), Queues: queuesText(t.Queues), By: cut(t.CreatedBy, 80),
		Created: v.clock.past(t.CreatedAt), Used: v.clock.past(t.LastUsedAt), Expires: v.clock.due(t.ExpiresAt),
	}
	switch {
	case !t.RevokedAt.IsZero():
		r.State = views.StateRevoked
		return r
	case t.Expired:
		r.State = views.StateExpired
	}
	r.Revoke = &views.Action{Kind: "revoke", Text: "Revoke…", Label: "Revoke token " + t.Name, Href: v.k.url("/access/tokens/" + escape(t.ID) + "/revoke"), Harm: true}
	return r
}

func scopesText(scopes []access.Scope) string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

var scopeHints = map[access.Scope]string{
	access.ScopeJobsRead: "reads everything, as each of the others does too", access.ScopeJobsWrite: "enqueues, cancels, stops, brings forward",
	access.ScopeQueuesWrite: "pauses and resumes", access.ScopeDLQWrite: "replays, discards, restores", access.ScopeAdmin: "does all",
}

func (k *Console) newToken(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	return k.newTokenPage(c, http.StatusOK, url.Values{"scope": {string(access.ScopeJobsRead)}}, nil)
}

func (k *Console) newTokenPage(c echo.Context, status int, form url.Values, bad map[string]string) error {
	v := k.visit(c)
	title := "New token"
	m := views.Confirm{
		Frame: v.frame(title, "access", false), Crumbs: []views.Crumb{{Text: "Tokens", Href: k.url("/access/tokens")}, {Text: title}}, Title: title,
		Act:  views.Action{Kind: "new", Text: "Make the token", Href: k.url("/access/tokens"), Post: true},
		Keep: views.Link{Text: "Cancel", Href: k.url("/access/tokens")}, Reason: views.ReasonField{Ask: true, Value: form.Get("reason"), Problem: bad["reason"]},
		Note: "It is shown once, on the next page.",
	}
	var scopes []views.Choice
	for _, s := range access.Scopes() {
		scopes = append(scopes, views.Choice{Value: string(s), Text: string(s), Hint: scopeHints[s], Checked: slices.Contains(form["scope"], string(s))})
	}
	m.Inputs = []views.Input{
		{Name: "name", Label: "Name", Kind: "text", Value: form.Get("name"), Required: true, Problem: bad["name"], Hint: "token:NAME is who acts, in the audit trail."},
		{Name: "scope", Label: "Scopes", Kind: "check", Options: scopes, Problem: bad["scope"]},
		{Name: "queues", Label: "Queues", Kind: "text", Value: form.Get("queues"), Problem: bad["queue"], Hint: "Separated by commas. Empty is every queue."},
		{Name: "days", Label: "Days until it expires", Kind: "text", Value: form.Get("days"), Problem: bad["expiry"], Hint: "Empty is until it is revoked."},
	}
	return v.askWith(status, m)
}

// createToken answers with the page that shows the secret, and not with a redirect:
// the secret stands in no address, cookie or log, and no-store keeps it out of the
// browser's memory of pages.
func (k *Console) createToken(c echo.Context) error {
	form, err := k.form(c, smallForm)
	if err != nil {
		return err
	}
	if !formPlain(form) {
		return badQuery("The form holds characters that no name has.")
	}
	spec := access.TokenSpec{Name: form.Get("name"), Queues: readQueues(form.Get("queues"))}
	for _, s := range form["scope"] {
		spec.Scopes = append(spec.Scopes, access.Scope(s))
	}
	bad := map[string]string{}
	reason := strings.TrimSpace(form.Get("reason"))
	if !validReason(reason) {
		bad["reason"] = "At most 500 characters of plain text."
	}
	if days := strings.TrimSpace(form.Get("days")); days != "" {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n == 0 || n > 36_500 {
			bad["expiry"] = "A whole number of days, 1 to 36500."
		}
		spec.TTL = time.Duration(n) * 24 * time.Hour
	}
	if len(bad) > 0 {
		return k.newTokenPage(c, http.StatusUnprocessableEntity, form, bad)
	}
	secret, made, err := k.Tokens.Create(c.Request().Context(), spec, k.actor(c, reason))
	switch faults := ruleFaults(err); {
	case faults != nil:
		return k.newTokenPage(c, http.StatusUnprocessableEntity, form, faults)
	case errors.Is(err, access.ErrTokenExists):
		return k.newTokenPage(c, http.StatusConflict, form, map[string]string{"name": "A token of this name exists. Revoke it, or take another name."})
	case err != nil:
		return err
	}
	k.Acts.OperatorAction("create token", "done")
	v := k.visit(c)
	m := views.NewToken{
		Frame: v.frame("Token "+made.Name, "access", false), Crumbs: []views.Crumb{{Text: "Tokens", Href: k.url("/access/tokens")}, {Text: made.Name}},
		Name: made.Name, Secret: secret, Back: views.Link{Text: "Done, I have copied it", Href: k.url("/access/tokens")},
	}
	m.Frame.Path = k.url("/access/tokens")
	expires := []views.Span{{Text: "never"}}
	if !made.ExpiresAt.IsZero() {
		expires = []views.Span{{At: v.clock.due(made.ExpiresAt)}}
	}
	m.Facts = []views.Fact{
		{Name: "Prefix", Value: []views.Span{{Text: "rje_" + made.ID, Code: true}}}, {Name: "Scopes", Value: text(scopesText(made.Scopes))},
		{Name: "Queues", Value: text(queuesText(made.Queues))}, {Name: "Expires", Value: expires},
	}
	return v.render(http.StatusOK, views.NewTokenPage(m))
}

// livingToken reads the token of the path, which may have expired but was not
// revoked.
func (k *Console) livingToken(c echo.Context) (access.Token, error) {
	id, err := param(c, "id")
	if err != nil {
		return access.Token{}, err
	}
	list, err := k.Tokens.List(c.Request().Context())
	if err != nil {
		return access.Token{}, err
	}
	for _, t := range list {
		if t.ID == id && t.RevokedAt.IsZero() {
			return t, nil
		}
	}
	return access.Token{}, notFound("No token has this id, or it was revoked before.")
}

func (k *Console) confirmRevoke(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	return k.askRevoke(c, http.StatusOK, views.ReasonField{})
}

func (k *Console) askRevoke(c echo.Context, status int, reason views.ReasonField) error {
	t, err := k.livingToken(c)
	if err != nil {
		return err
	}
	v := k.visit(c)
	row := v.tokenRow(&t)
	m := views.Confirm{
		Title: "Revoke token " + t.Name + "?", Keep: views.Link{Text: "Keep it", Href: k.url("/access/tokens")}, Reason: reason,
		Act: views.Action{Kind: "revoke", Text: "Revoke", Href: row.Revoke.Href, Post: true, Harm: true},
		Facts: []views.Fact{
			{Name: "Token", Value: []views.Span{{Text: t.Name}, {Text: "rje_" + t.ID + "…", Code: true}}}, becomes("Is good", yesNo(!t.Expired), "no"),
			{Name: "Scopes", Value: text(row.Scopes)}, {Name: "Queues", Value: text(row.Queues)}, {Name: "Last used", Value: []views.Span{{At: row.Used}}},
		},
		Note: "There is no way back. Servers forget it within " + span(auth.TokenMemory) + "; programs that use it get 401.",
	}
	if t.LastUsedAt.IsZero() {
		m.Facts[4].Value = text("never")
	}
	m.Reason.Ask = true
	m.Frame = v.frame(m.Title, "access", false)
	m.Crumbs = []views.Crumb{{Text: "Tokens", Href: k.url("/access/tokens")}, {Text: t.Name}, {Text: "Revoke"}}
	return v.askWith(status, m)
}

func (k *Console) revokeToken(c echo.Context) error {
	form, err := k.form(c, smallForm)
	if err != nil {
		return err
	}
	reason := strings.TrimSpace(form.Get("reason"))
	if !validReason(reason) {
		return k.askRevoke(c, http.StatusUnprocessableEntity, views.ReasonField{Problem: "At most 500 characters of plain text."})
	}
	t, err := k.livingToken(c)
	if err != nil {
		return err
	}
	if err := k.Tokens.Revoke(c.Request().Context(), t.ID, k.actor(c, reason)); err != nil {
		return err
	}
	k.Acts.OperatorAction("revoke token", "done")
	k.leave(c, note{Did: "token_revoke", ID: t.Name})
	return c.Redirect(http.StatusSeeOther, k.url("/access/tokens"))
}
