package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// visit is one request for a page: who asks, seen from which moment, with the
// figures that stand around every page.
type visit struct {
	echo.Context
	k     *Console
	clock clock
	// figures are the last good ones, nil if there are none; trouble is what went
	// wrong with the newest reading.
	figures *figures
	trouble error
	who     auth.Principal
}

// visit begins a page.
func (k *Console) visit(c echo.Context) *visit {
	v := &visit{Context: c, k: k, who: k.caller(c)}
	all, trouble := k.board.look(c.Request().Context())
	v.figures, v.trouble = all.of(v.who), trouble
	v.clock = clock{now: k.now(c), times: choice(cookie(c, "console_times"), "ago", "utc", "local")}
	return v
}

// now is the moment a page is seen from. Outside production a cookie may fix it,
// for pictures that are the same every time.
func (k *Console) now(c echo.Context) time.Time {
	if k.Env != "production" {
		if t, err := time.Parse(time.RFC3339, cookie(c, "console_now")); err == nil {
			return t
		}
	}
	return time.Now()
}

func cookie(c echo.Context, name string) string {
	got, err := c.Cookie(name)
	if err != nil {
		return ""
	}
	value, err := url.QueryUnescape(got.Value)
	if err != nil {
		return ""
	}
	return value
}

// choice returns given if it is allowed, else the first of those allowed.
func choice(given string, allowed ...string) string {
	for _, a := range allowed {
		if a == given {
			return a
		}
	}
	return allowed[0]
}

func (v *visit) may(s auth.Scope) bool { return v.who.May(s) }

// lacks says, where the caller may not act, what needs which role: the buttons are
// absent.
func (v *visit) lacks(s auth.Scope, what string) string {
	if v.may(s) {
		return ""
	}
	role := "operator"
	if s == auth.ScopeAdmin {
		role = "admin"
	}
	return "You may read here: " + what + " needs the role " + role + "."
}

// mayAccess tells whether the caller may see and change who may do what.
func (v *visit) mayAccess() bool {
	return v.k.People != nil && v.may(auth.ScopeAdmin) && !v.who.Limited()
}

// frame is what stands around a page. live says that the page follows what
// happens.
func (v *visit) frame(title, active string, live bool) views.Frame {
	f := views.Frame{
		Base: v.k.Base, Path: v.path(), Title: title, Active: active, Env: v.k.Env, Version: v.k.Version,
		Now: v.readAt(), Banners: v.banners(), Display: v.display(), Person: v.person(),
	}
	f.Access, f.Narrow = v.mayAccess(), v.who.Limited()
	if ends := auth.SessionEnds(v); !ends.IsZero() {
		f.SessionEnds = ends.UTC().Format(time.RFC3339)
	}
	if v.figures != nil {
		f.DeadCount = tally(v.figures.dead())
	}
	if live {
		f.Live = views.Live{Off: v.QueryParam("live") == "off", Href: v.path(set("live", otherLive(v.QueryParam("live"))))}
	}
	f.Flash = v.takeFlash()
	return f
}

// otherLive is the parameter live that turns following off, or on again.
func otherLive(now string) string {
	if now == "off" {
		return ""
	}
	return "off"
}

func (v *visit) readAt() views.Time {
	t := v.clock.at(v.clock.now)
	t.Text = v.clock.now.UTC().Format("15:04:05")
	t.ISO = v.clock.now.UTC().Format(time.RFC3339)
	return t
}

// change alters the query of an address.
type change func(url.Values)

func set(name, value string) change {
	return func(q url.Values) {
		if value == "" {
			q.Del(name)
			return
		}
		q.Set(name, value)
	}
}

// path is this page's address, below the host, with changes to its query. It is
// made anew from what was understood of the address, so that nothing of it comes
// back as it was sent.
func (v *visit) path(changes ...change) string {
	q := url.Values{}
	for name, values := range v.QueryParams() {
		if len(values) == 1 && len(values[0]) <= maxParam {
			q.Set(name, values[0])
		}
	}
	for _, c := range changes {
		c(q)
	}
	at := v.Request().URL
	return (&url.URL{Path: at.Path, RawPath: at.RawPath, RawQuery: q.Encode()}).String()
}

func (v *visit) display() views.Display {
	return views.Display{
		Theme: choice(cookie(v, "console_theme"), "system", "light", "dark"), Density: choice(cookie(v, "console_density"), "compact", "comfortable"),
		Times: v.clock.times, NoKeys: cookie(v, "console_keys") == "off",
	}
}

// person is who is signed in; nil where nobody needs to.
func (v *visit) person() *views.Person {
	if v.who.Kind == auth.KindAnonymous {
		return nil
	}
	p := &views.Person{Name: v.who.Name, Role: roleOf(v.who)}
	if v.who.Limited() {
		p.Role += " of " + cut(joined(v.who.Queues), 60)
	}
	return p
}

func roleOf(p auth.Principal) string {
	switch {
	case p.May(auth.ScopeAdmin):
		return "Admin"
	case p.May(auth.ScopeJobsWrite):
		return "Operator"
	}
	return "Viewer"
}

// banners are the causes of trouble that every page shows until they are gone.
func (v *visit) banners() []views.Banner {
	var list []views.Banner
	if v.trouble != nil {
		b := views.Banner{State: views.LevelCritical, Title: "The database does not answer."}
		if v.slow() {
			b.State, b.Title = views.LevelDegraded, "The figures are late."
		}
		b.Text = text(v.stale() + ".")
		list = append(list, b)
	}
	if v.who.Name == auth.NoSignIn {
		list = append(list, views.Banner{State: views.LevelDegraded, Title: "No sign-in.", Text: text("Everybody who reaches this address may do everything.")})
	}
	if v.figures == nil {
		return list
	}
	paused := 0
	for i := range v.figures.snap.Queues {
		q := &v.figures.snap.Queues[i]
		if !q.Paused {
			continue
		}
		if paused++; paused <= 3 {
			list = append(list, v.pausedBanner(q))
		}
	}
	if paused > 3 {
		list = append(list, views.Banner{State: views.StatePaused, Title: plural(int64(paused-3), "more queue") + " paused.",
			Text: []views.Span{{Text: "All queues", Href: v.k.url("/queues")}}})
	}
	return list
}

func (v *visit) pausedBanner(q *inspect.Queue) views.Banner {
	b := views.Banner{State: views.StatePaused, Title: q.Name + " is paused."}
	b.Text = append(b.Text, views.Span{Text: plural(q.Depth.Ready, "ready job") + " " + verb(q.Depth.Ready, "waits", "wait") + ", since"},
		views.Span{At: v.clock.at(q.PausedAt)}, views.Span{Text: "UTC."})
	if q.PausedReason != "" {
		b.Text = append(b.Text, views.Span{Text: cut(q.PausedReason, 200), Quote: true})
	}
	if !q.ResumeAt.IsZero() {
		b.Text = append(b.Text, views.Span{Text: "Resumes"}, views.Span{At: v.clock.due(q.ResumeAt)})
	}
	return b
}

// slow tells a reading that was too slow from a database that is away.
func (v *visit) slow() bool { return isDeadline(v.trouble) }

// stale says since when there are no fresh figures; empty while there are.
func (v *visit) stale() string {
	if v.trouble == nil {
		return ""
	}
	return v.figures.staleSince()
}

// staleSince is for figures that could not be renewed, or that there never were.
func (f *figures) staleSince() string {
	if f == nil {
		return "no data yet"
	}
	return "no fresh data since " + f.at.UTC().Format("15:04:05") + " UTC"
}

// setDisplay keeps how a person wants pages, in cookies that the script may read.
func (k *Console) setDisplay(c echo.Context) error {
	form, err := k.form(c, smallForm)
	if err != nil {
		return err
	}
	for name, allowed := range map[string][]string{
		"theme": {"system", "light", "dark"}, "density": {"compact", "comfortable"}, "times": {"ago", "utc", "local"}, "keys": {"on", "off"},
	} {
		value := form.Get(name)
		if value == "" {
			continue
		}
		c.SetCookie(&http.Cookie{
			Name: "console_" + name, Value: choice(value, allowed...), Path: k.Base + "/", MaxAge: 365 * 24 * 3600, SameSite: http.SameSiteLaxMode,
			Secure: c.IsTLS(),
		})
	}
	return c.Redirect(http.StatusSeeOther, auth.SafeNext(k.Base, form.Get("return")))
}
