package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// clockLimit is how far this process's clock may be from the database's.
const clockLimit = 2 * time.Second

func (k *Console) system(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	asked := time.Now()
	db, err := k.Read.Database(ctx)
	if err != nil {
		return err
	}
	leader, err := k.Read.Leader(ctx)
	if err != nil {
		return err
	}
	tasks, err := k.Read.Tasks(ctx)
	if err != nil {
		return err
	}
	integrity, err := k.Read.Integrity(ctx)
	if err != nil {
		return err
	}
	v := k.visit(c)
	offset := db.At.Sub(asked)
	m := views.System{Frame: v.frame("System", "system", false)}
	m.Strip = v.systemStrip(db, offset)
	if offset.Abs() > clockLimit {
		m.Notices = append(m.Notices, views.Notice{
			State: views.StateLate, Title: "This server's clock is " + span(offset.Abs()) + " away from the database's.",
			Text: text("What is due is decided by the database's clock; ages on these pages may be wrong."),
		})
	}
	m.Notices = append(m.Notices, integrityNotices(integrity)...)
	m.Sections = append(m.Sections, v.integritySection(integrity), v.buildSection(c), databaseSection(v, db), v.maintenanceSection(leader, tasks), tablesSection(v, db))
	if k.Pool != nil {
		m.Sections = append(m.Sections, settingsSection("pool", "Connection pool", "of this process", k.Pool()))
	}
	if len(k.Settings) > 0 {
		m.Sections = append(m.Sections, settingsSection("settings", "Effective settings", "secrets are hidden", k.Settings))
	}
	return v.render(http.StatusOK, views.SystemPage(m))
}

func (v *visit) systemStrip(db inspect.Database, offset time.Duration) []views.Figure {
	var dead, live int64
	for _, t := range db.Tables {
		dead, live = dead+t.Dead, live+t.Live
	}
	oldest := views.Figure{Name: "Oldest transaction", Value: text(span(db.OldestTransaction))}
	if db.OldestTransaction > time.Minute {
		oldest.Tone = views.ToneWarn
	}
	clock := views.Figure{Name: "Clock offset", Value: text(span(offset.Abs()))}
	if offset.Abs() > clockLimit {
		clock.Tone = views.ToneUp
	}
	return []views.Figure{
		{Name: "Version", Value: text(dash(v.k.Version))}, {Name: "Database size", Value: text(size(db.SizeBytes))},
		{Name: "Rows, about", Value: text(count(live))}, {Name: "Dead rows, about", Value: text(count(dead))}, oldest, clock,
	}
}

func (v *visit) buildSection(c echo.Context) views.Section {
	s := settingsSection("build", "Build", "", v.k.Build)
	if v.k.SchemaVersion != nil {
		database, build, err := v.k.SchemaVersion(c.Request().Context())
		value := database
		switch {
		case err != nil:
			value = "could not be read"
		case database != build:
			value = database + ", this build wants " + build
		}
		s.Facts = append(s.Facts, views.Fact{Name: "Schema", Value: text(value)})
	}
	return s
}

func databaseSection(v *visit, db inspect.Database) views.Section {
	return views.Section{ID: "database", Title: "Database", Facts: []views.Fact{
		{Name: "PostgreSQL", Value: text(db.Version)}, {Name: "Started", Value: []views.Span{{At: v.clock.past(db.StartedAt)}}},
		{Name: "Connections", Value: text(count(db.Connections) + " of " + count(int64(db.MaxConnections)))},
		{Name: "Its clock", Value: []views.Span{{At: v.clock.at(db.At)}, {Text: "UTC"}}},
	}}
}

func (v *visit) maintenanceSection(leader *inspect.Leader, tasks []inspect.Task) views.Section {
	s := views.Section{ID: "maintenance", Title: "Maintenance", Text: "done by one leader at a time"}
	who := views.Fact{Name: "Leader", Value: []views.Span{{Text: "nobody", Tone: views.ToneUp}}}
	if leader != nil {
		name := leader.WorkerName
		if name == "" {
			name = "worker " + count(leader.WorkerID)
		}
		who.Value = []views.Span{{Text: name}, {Text: "term " + count(leader.Term) + ", since", Tone: views.ToneMuted}, {At: v.clock.past(leader.AcquiredAt)}}
		if !leader.Live {
			who.Value = append(who.Value, views.Span{Text: "expired", Tone: views.ToneUp})
		}
	}
	s.Facts = append(s.Facts, who)
	for _, t := range tasks {
		value := text("never yet")
		if !t.LastSuccessAt.IsZero() {
			value = text(agoText(t.Age))
		}
		s.Facts = append(s.Facts, views.Fact{Name: "Last pass of " + t.Name, Value: value})
	}
	return s
}

func tablesSection(v *visit, db inspect.Database) views.Section {
	s := views.Section{ID: "tables", Title: "Tables", Text: "rows as the statistics have them", Head: []string{"Table", "Rows", "Dead rows", "Size", "Vacuumed"}}
	for _, t := range db.Tables {
		s.Rows = append(s.Rows, []string{t.Name, count(t.Live), count(t.Dead), size(t.SizeBytes), v.clock.past(t.VacuumedAt).Text})
	}
	return s
}

func settingsSection(id, title, note string, list []Setting) views.Section {
	s := views.Section{ID: id, Title: title, Text: note}
	for _, x := range list {
		value := []views.Span{{Text: dash(x.Value)}}
		if x.Source != "" {
			value = append(value, views.Span{Text: x.Source, Tone: views.ToneMuted})
		}
		s.Facts = append(s.Facts, views.Fact{Name: x.Name, Value: value})
	}
	return s
}

func (k *Console) help(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	v := k.visit(c)
	m := views.Help{Frame: v.frame("Help", "help", false), Problems: k.Problems}
	for _, w := range search.Words() {
		m.Words = append(m.Words, views.SearchWord{Name: w.Name, Example: w.Example, Means: w.Means,
			Href: k.url("/jobs?" + url.Values{"q": {w.Example}}.Encode())})
	}
	for _, s := range k.Retention {
		m.Retention = append(m.Retention, views.Fact{Name: s.Name, Value: text(s.Value)})
	}
	return v.render(http.StatusOK, views.HelpPage(m))
}

// helpProblem is the address that the API's problems name.
func (k *Console) helpProblem(c echo.Context) error {
	code, err := param(c, "code")
	if err != nil {
		return err
	}
	for _, p := range k.Problems {
		if p.Code == code {
			return c.Redirect(http.StatusFound, k.url("/help#problem-"+code))
		}
	}
	return notFound("The API has no problem " + quoted(code) + ".")
}
