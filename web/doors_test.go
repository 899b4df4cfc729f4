package web

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// operatorAct is one act of an operator, by each door that has it.
type operatorAct struct {
	method       string // of engine.Client
	action, kind string // in the trail
	target       func() string
	api, console string // routes
	body         string
	form         url.Values
	call         func(ctx context.Context, id engine.ID, a engine.Actor) error
}

// noActs are the unsafe routes that act on nobody else's thing: an enqueue makes a job
// of one's own, the rest is about the caller's session and display.
var noActs = []string{"POST /jobs", "POST /api/v1/jobs", "POST /api/v1/jobs/bulk", "POST /console/jobs", "POST /console/login", "POST /console/logout", "POST /console/display", "* /console/*"}

// aliases are unsafe routes of the same handler under another path.
var aliases = map[string]string{"DELETE /jobs/:id": "DELETE /api/v1/jobs/:id"}

// operatorActs are all there are.
func (s *site) operatorActs() []operatorAct {
	token := func() int64 { return int64(s.count(`SELECT nextval('job_claims_id_seq')`)) }
	waiting := func() string { return s.enqueue(`{"type":"email","queue":"mail"}`) }
	later := func() string { return s.enqueue(`{"type":"email","queue":"mail","delay_seconds":3600}`) }
	running := func() string { id := waiting(); s.run(id, token()); return id }
	by := engine.Actor{Name: "setting up"}
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	discarded := func() string {
		id := s.buried()
		must(s.client.Discard(s.t.Context(), uuid.MustParse(id), by))
		return id
	}
	steered := func(to ...func(context.Context, engine.ID, engine.Actor) error) func() string {
		return func() string {
			id := s.buried()
			o, err := s.client.Operate(s.t.Context(), engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{IDs: []engine.ID{uuid.MustParse(id)}}}, by)
			must(err)
			for _, do := range to {
				must(do(s.t.Context(), o.ID, by))
			}
			return o.ID.String()
		}
	}
	operate := func(action engine.OperationAction) func(context.Context, engine.ID, engine.Actor) error {
		return func(ctx context.Context, _ engine.ID, a engine.Actor) error {
			_, err := s.client.Operate(ctx, engine.OperationSpec{Action: action, Select: engine.Selection{Queue: "mail"}}, a)
			return err
		}
	}
	many := func(action string) url.Values {
		return url.Values{"action": {action}, "queue": {"mail"}, "pace": {"all"}, "expected": {"1"}}
	}
	found := func(action string) url.Values {
		return url.Values{"action": {action}, "q": {"queue:mail"}, "expected": {"1"}}
	}
	alone := func(one func() string) func() string { // the only one of its queue
		return func() string {
			s.exec("DELETE FROM dead_letter_jobs; DELETE FROM job_ready; DELETE FROM job_scheduled")
			return one()
		}
	}
	edit := func(ctx context.Context, id engine.ID, a engine.Actor) error {
		high := engine.PriorityHigh
		return s.client.Edit(ctx, id, engine.Edit{Priority: &high}, a)
	}
	reveal := func(ctx context.Context, id engine.ID, a engine.Actor) error {
		_, err := s.client.Reveal(ctx, id, a)
		return err
	}
	typ := func() string { return uuid.NewString() }
	withSchema := func() string {
		name := typ()
		_, err := s.client.SetTypeSchema(s.t.Context(), name, json.RawMessage(`{}`), by)
		must(err)
		return name
	}
	setSchema := func(ctx context.Context, id engine.ID, a engine.Actor) error {
		_, err := s.client.SetTypeSchema(ctx, id.String(), json.RawMessage(`{}`), a)
		return err
	}
	removeSchema := func(ctx context.Context, id engine.ID, a engine.Actor) error {
		return s.client.RemoveTypeSchema(ctx, id.String(), a)
	}
	job, operation, schema := "/api/v1/jobs/:id", "/api/v1/operations/:id", "/api/v1/types/:type/schema"
	return []operatorAct{
		{"Cancel", "cancel", "job", waiting, "DELETE " + job, "POST /console/jobs/:id/cancel", "", nil, s.client.Cancel},
		{"RequestStop", "stop", "job", running, "POST " + job + "/stop", "POST /console/jobs/:id/stop", "", nil, s.client.RequestStop},
		{"RunNow", "run_now", "job", later, "POST " + job + "/run-now", "POST /console/jobs/:id/run-now", "", nil, s.client.RunNow},
		{"Edit", "edit", "job", later, "PATCH " + job, "", `,"priority":3`, nil, edit},
		{"SetTypeSchema", "set_schema", "type", typ, "PUT " + schema, "", `,"schema":{}`, nil, setSchema},
		{"RemoveTypeSchema", "remove_schema", "type", withSchema, "DELETE " + schema, "", "", nil, removeSchema},
		{"Reveal", "reveal", "job", waiting, "", "POST /console/jobs/:id/reveal", "", nil, reveal},
		{"Replay", "replay", "job", s.buried, "POST /api/v1/dlq/:id/replay", "POST /console/dlq/:id/replay", "", nil, s.client.Replay},
		{"Discard", "discard", "job", s.buried, "POST /api/v1/dlq/:id/discard", "POST /console/dlq/:id/discard", "", nil, s.client.Discard},
		{"Restore", "restore", "job", discarded, "POST /api/v1/dlq/:id/restore", "POST /console/dlq/:id/restore", "", nil, s.client.Restore},
		{"Operate", "operation replay", "operation", alone(s.buried), "POST /api/v1/dlq/replay", "POST /console/operations", `,"queue":"mail"`, many("replay"), operate(engine.OperateReplay)},
		{"Operate", "operation discard", "operation", alone(s.buried), "POST /api/v1/dlq/discard", "POST /console/operations", `,"queue":"mail"`, many("discard"), operate(engine.OperateDiscard)},
		{"Operate", "operation cancel", "operation", alone(waiting), "POST /api/v1/operations", "POST /console/operations", `,"queue":"mail","action":"cancel"`, found("cancel"), operate(engine.OperateCancel)},
		{"Operate", "operation run_now", "operation", alone(later), "POST /api/v1/operations", "POST /console/operations", `,"queue":"mail","action":"run_now"`, found("run_now"), operate(engine.OperateRunNow)},
		{"PauseOperation", "operation pause", "operation", steered(), "POST " + operation + "/pause", "POST /console/operations/:id/pause", "", nil, s.client.PauseOperation},
		{"ContinueOperation", "operation continue", "operation", steered(s.client.PauseOperation), "POST " + operation + "/continue", "POST /console/operations/:id/continue", "", nil, s.client.ContinueOperation},
		{"StopOperation", "operation stop", "operation", steered(), "POST " + operation + "/stop", "POST /console/operations/:id/stop", "", nil, s.client.StopOperation},
	}
}

// fillType is fill for an act on a type, whose name stands for its id here.
func fillType(route, id string) string { return fill(strings.Replace(route, ":type", id, 1), id) }

// doors are the ways to do an act; each answers whether it was done.
func (s *site) doors(act operatorAct) map[string]func(id string) (bool, string) {
	const why = "INC-204"
	send := func(door, agent string) func(string) (bool, string) {
		return func(id string) (bool, string) {
			method, path, _ := strings.Cut(act.api, " ")
			got := s.send(method, fillType(path, id), strings.NewReader(`{"reason":"`+why+`"`+act.body+`}`), "Content-Type", "application/json", "User-Agent", agent, "If-Match", "*")
			return got.status < 300, fmt.Sprint(got.status, " ", got.body)
		}
	}
	doors := map[string]func(string) (bool, string){
		"go": func(id string) (bool, string) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			err := act.call(ctx, uuid.MustParse(id), engine.Actor{Name: "program", Reason: why})
			return err == nil, fmt.Sprint(err)
		},
	}
	if act.api != "" {
		doors["api"], doors["cli"] = send("api", "curl/8"), send("cli", "jobctl/1.2.3")
	}
	if act.console != "" {
		doors["console"] = func(id string) (bool, string) {
			form := url.Values{"reason": {why}}
			maps.Copy(form, act.form)
			got := s.submit(strings.TrimPrefix(fill(strings.TrimPrefix(act.console, "POST "), id), "/console"), form)
			return got.status < 400, fmt.Sprintf("%d %.300s", got.status, plainText(got.body))
		}
	}
	return doors
}

// TestEveryActOfEveryDoorWritesItsRowOrDoesNothing does each act by each door, first
// while the trail cannot be written: then nothing at all may have happened.
func TestEveryActOfEveryDoorWritesItsRowOrDoesNothing(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.exec(`CREATE FUNCTION everything() RETURNS text LANGUAGE plpgsql AS $$ DECLARE name text; part text; everything text := ''; BEGIN
		FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'elsewhere' ORDER BY tablename LOOP
			EXECUTE format('SELECT count(*) || '' '' || coalesce(md5(string_agg(t::text, '','' ORDER BY t::text)), '''') FROM %I AS t', name) INTO part;
			everything := everything || name || ' ' || part || E'\n';
		END LOOP; RETURN everything; END $$`)
	for _, act := range s.operatorActs() {
		for door, do := range s.doors(act) {
			id := act.target()
			s.exec("ALTER TABLE operator_action_head RENAME TO elsewhere")
			before := s.text("SELECT everything()")
			if done, says := do(id); done {
				t.Errorf("%s by %s is answered as done without its row: %s", act.action, door, says)
			}
			if after := s.text("SELECT everything()"); after != before {
				t.Errorf("%s by %s without its row changed\n%s\nto\n%s", act.action, door, before, after)
			}
			s.exec("ALTER TABLE elsewhere RENAME TO operator_action_head")
			last := s.count("SELECT coalesce(max(id), 0) FROM operator_actions")
			if done, says := do(id); !done {
				t.Errorf("%s by %s: %s", act.action, door, says)
				continue
			}
			actor := map[string]string{"api": "development", "cli": "development", "go": "program", "console": "anonymous (no sign-in)"}[door]
			want := fmt.Sprintf("%s %s %s %s", actor, door, act.action, act.kind)
			if got := s.text(`SELECT string_agg(concat_ws(' ', actor, source, action, target_kind), '; ') FROM operator_actions WHERE id > $1`, last); got != want {
				t.Errorf("%s by %s left %q, want %q", act.action, door, got, want)
			}
			if act.kind == "job" && s.count("SELECT count(*) FROM operator_actions WHERE id > $1 AND target = $2", last, id) != 1 {
				t.Errorf("%s by %s names another target", act.action, door)
			}
		}
	}
}

// TestTheActsAreAllThereAre finds an act or an unsafe route that the test above leaves out.
func TestTheActsAreAllThereAre(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	methods, routes := map[string]bool{}, map[string]bool{}
	for _, act := range s.operatorActs() {
		methods[act.method], routes[act.api], routes[act.console] = true, true, true
	}
	for m := range reflect.TypeFor[*engine.Client]().Methods() {
		takesActor := slices.ContainsFunc(slices.Collect(m.Type.Ins()), func(in reflect.Type) bool { return in == reflect.TypeFor[engine.Actor]() })
		if takesActor != methods[m.Name] {
			t.Errorf("engine.Client.%s takes an actor: %t, is among the acts: %t", m.Name, takesActor, methods[m.Name])
		}
	}
	for _, r := range s.echo.Routes() {
		key := routeKey(r.Method, r.Path)
		if alias, ok := aliases[key]; ok {
			key = alias
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !routes[key] && !slices.Contains(noActs, key) {
			t.Errorf("%s is no act of operatorActs and not among noActs", key)
		}
	}
}
