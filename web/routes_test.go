package web

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// TestEveryRouteAnswers holds a line for each route of the router's own table.
func TestEveryRouteAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	waiting := s.enqueue(`{"type":"email","queue":"mail"}`)
	other := s.enqueue(`{"type":"email","queue":"mail"}`)
	done := s.enqueue(`{"type":"report"}`)
	s.run(done, 11)
	s.end(done, 11, 1)
	s.exec(`UPDATE job_executions SET result = '{"n": 1}' WHERE job_id = $1`, uuid.MustParse(done))
	running := s.enqueue(`{"type":"report"}`)
	s.run(running, 12)
	s.tell(running, 12)
	later := s.enqueue(`{"type":"email","delay_seconds":3600}`)
	last := s.enqueue(`{"type":"email"}`)
	var dead []string
	for i := range 3 {
		id := s.enqueue(`{"type":"email"}`)
		s.die(id, int64(20+i))
		dead = append(dead, id)
	}
	s.exec(`UPDATE dead_letter_jobs SET discarded_at = now() WHERE job_id = $1`, uuid.MustParse(dead[2]))

	s.deadIn("many", 3)
	operation := func() string {
		return s.ask("POST", operationsPath, `{"action":"replay","queue":"many","pace":"rate","per_minute":1}`).text("id")
	}
	paused := operation()
	s.ask("POST", operationsPath+"/"+paused+"/pause", "")

	for _, typ := range []string{"letter", "sms"} {
		s.ask("PUT", "/api/v1/types/"+typ+"/schema", `{"schema":{"type":"object"}}`)
	}

	answers := map[string]struct {
		path, body string
		status     int
		key        []string // this field is there
	}{
		"GET /":                                {"/", "", 200, []string{"jobs"}},
		"GET /healthz":                         {"/healthz", "", 200, []string{"timestamp"}},
		"GET /readyz":                          {"/readyz", "", 200, []string{"checks", "database", "duration_ms"}},
		"GET /metrics":                         {"/metrics", "", 200, nil},
		"GET /api/v1/version":                  {"/api/v1/version", "", 200, []string{"built_at"}},
		"POST /api/v1/jobs":                    {"/api/v1/jobs", `{"type":"email"}`, 201, []string{"run_at"}},
		"POST /api/v1/jobs/bulk":               {bulkPath, `{"jobs":[{"type":"email"}]}`, 201, []string{"jobs", "0", "id"}},
		"PATCH /api/v1/jobs/:id":               {"/api/v1/jobs/" + last, `{"priority":5}`, 200, []string{"version"}},
		"GET /api/v1/jobs":                     {"/api/v1/jobs", "", 200, []string{"data", "0", "status"}},
		"GET /api/v1/jobs/:id":                 {"/api/v1/jobs/" + waiting, "", 200, []string{"payload"}},
		"DELETE /api/v1/jobs/:id":              {"/api/v1/jobs/" + waiting, "", 200, []string{"finished_at"}},
		"POST /jobs":                           {"/jobs", `{"type":"email"}`, 201, []string{"id"}},
		"GET /jobs":                            {"/jobs?type=email&page=1", "", 200, []string{"data", "0", "id"}},
		"GET /jobs/:id":                        {"/jobs/" + other, "", 200, []string{"updated_at"}},
		"DELETE /jobs/:id":                     {"/jobs/" + other, "", 200, []string{"status"}},
		"GET /api/v1/jobs/:id/attempts":        {"/api/v1/jobs/" + done + "/attempts", "", 200, []string{"data", "0", "fencing_token"}},
		"POST /api/v1/jobs/:id/run-now":        {"/api/v1/jobs/" + later + "/run-now", `{"reason":"asked for"}`, 200, []string{"run_at"}},
		"POST /api/v1/jobs/:id/stop":           {"/api/v1/jobs/" + running + "/stop", `{"reason":"wrong"}`, 202, []string{"stop_request", "requested_at"}},
		"GET /api/v1/jobs/:id/logs":            {"/api/v1/jobs/" + running + "/logs", "", 200, []string{"data", "0", "msg"}},
		"GET /api/v1/jobs/:id/explain":         {"/api/v1/jobs/" + later + "/explain", "", 200, []string{"headline", "text"}},
		"GET /api/v1/jobs/:id/result":          {"/api/v1/jobs/" + done + "/result", "", 200, []string{"n"}},
		"GET /api/v1/queues":                   {"/api/v1/queues", "", 200, []string{"data", "0", "depth", "ready"}},
		"GET /api/v1/queues/:name":             {"/api/v1/queues/default", "", 200, []string{"slots", "total"}},
		"GET /api/v1/dlq":                      {"/api/v1/dlq", "", 200, []string{"data", "0", "reason"}},
		"GET /api/v1/dlq/:id":                  {"/api/v1/dlq/" + dead[0], "", 200, []string{"stack"}},
		"POST /api/v1/dlq/:id/replay":          {"/api/v1/dlq/" + dead[0] + "/replay", `{"reason":"mended"}`, 200, []string{"replays"}},
		"POST /api/v1/dlq/:id/discard":         {"/api/v1/dlq/" + dead[1] + "/discard", "", 200, []string{"discarded_at"}},
		"POST /api/v1/dlq/:id/restore":         {"/api/v1/dlq/" + dead[2] + "/restore", "", 200, []string{"dead_reason"}},
		"POST /api/v1/dlq/replay":              {"/api/v1/dlq/replay", `{"queue":"many","dry_run":true}`, 200, []string{"total"}},
		"POST /api/v1/dlq/discard":             {"/api/v1/dlq/discard", `{"queue":"many","dry_run":true}`, 200, []string{"groups", "0", "samples"}},
		"POST /api/v1/operations":              {operationsPath, `{"action":"replay","queue":"many"}`, 202, []string{"cut_off"}},
		"GET /api/v1/operations":               {operationsPath, "", 200, []string{"data", "0", "pace"}},
		"GET /api/v1/operations/:id":           {operationsPath + "/" + paused, "", 200, []string{"outcomes"}},
		"POST /api/v1/operations/:id/pause":    {operationsPath + "/" + operation() + "/pause", "", 200, []string{"status"}},
		"POST /api/v1/operations/:id/continue": {operationsPath + "/" + paused + "/continue", "", 200, []string{"status"}},
		"POST /api/v1/operations/:id/stop":     {operationsPath + "/" + operation() + "/stop", `{"reason":"enough"}`, 200, []string{"ended_at"}},
		"GET /api/v1/types/:type/schema":       {"/api/v1/types/sms/schema", "", 200, []string{"schema", "type"}},
		"PUT /api/v1/types/:type/schema":       {"/api/v1/types/sms/schema", `{"schema":{"required":["to"]}}`, 200, []string{"updated_at"}},
		"DELETE /api/v1/types/:type/schema":    {"/api/v1/types/letter/schema", `{"reason":"too strict"}`, 204, nil},
		"GET /api/v1/workers":                  {"/api/v1/workers", "", 200, []string{"data"}},
		"GET /api/v1/audit":                    {"/api/v1/audit", "", 200, []string{"data", "0", "action"}},
		"GET /api/v1/openapi.json":             {"/api/v1/openapi.json", "", 200, []string{"openapi"}},
	}
	var routes []string
	for _, r := range s.echo.Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	slices.Sort(routes)
	for _, name := range routes {
		want, ok := answers[name]
		if !ok {
			t.Errorf("no test asks %s", name)
			continue
		}
		method, _, _ := strings.Cut(name, " ")
		var headers []string
		if want.body != "" {
			headers = []string{"Content-Type", "application/json", "If-Match", "*"}
		}
		got := s.do(method, want.path, want.body, headers...)
		if got.status != want.status || want.key != nil && got.field(want.key...) == nil {
			t.Errorf("%s = %d %s, want %d with %v", name, got.status, got.body, want.status, want.key)
		}
		if got.header.Get("X-Request-Id") == "" {
			t.Errorf("%s has no request id", name)
		}
	}
	if len(routes) != len(answers) {
		t.Errorf("%d routes, %d tested", len(routes), len(answers))
	}
}

// TestG6NoRouteIsOpenWithoutAToken is pitfall G6, over the router's own table, and
// fails when a new route is open.
func TestG6NoRouteIsOpenWithoutAToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	param := regexp.MustCompile(`:[a-z]+`)
	for _, r := range s.echo.Routes() {
		path := param.ReplaceAllString(r.Path, uuid.NewString())
		for name, headers := range map[string][]string{
			"no token": nil, "another token": {"Authorization", "Bearer rje_00000000000000000000000000000000"},
			"no scheme": {"Authorization", apiToken}, "empty": {"Authorization", "Bearer "}, "basic": {"Authorization", "Basic " + apiToken},
			"forwarded": {"X-Forwarded-For", "127.0.0.1"},
		} {
			got := s.send(r.Method, path, strings.NewReader(`{"type":"email"}`), append(headers, "Content-Type", "application/json")...)
			open := r.Path == "/healthz" || r.Path == "/readyz"
			switch {
			case open && got.status != 200:
				t.Errorf("%s %s with %s = %d, want the probe's answer", r.Method, r.Path, name, got.status)
			case !open:
				got.refused(r.Method+" "+r.Path+" with "+name, http.StatusUnauthorized, "unauthenticated", "")
				if got.header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s %s with %s: no WWW-Authenticate", r.Method, r.Path, name)
				}
			}
		}
	}
	s.nothingStored()
}

func TestMetricsHaveATokenOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.MetricsToken = "scrape" })
	if got := s.send("GET", "/metrics", nil, "Authorization", "Bearer scrape"); got.status != 200 {
		t.Errorf("/metrics with its token = %d, want 200", got.status)
	}
	s.do("GET", "/metrics", "").refused("/metrics with the API's token", 401, "unauthenticated", "")
	s.send("GET", "/api/v1/jobs", nil, "Authorization", "Bearer scrape").refused("the API with the metrics token", 401, "unauthenticated", "")
}

// TestG6OpenOnlyInDevelopmentOnLoopback is pitfall G6: no token, no open address.
func TestG6OpenOnlyInDevelopmentOnLoopback(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token, c.Development = "", true })
	if got := s.send("GET", "/api/v1/jobs", nil); got.status != 200 {
		t.Errorf("development on loopback without a token = %d, want 200", got.status)
	}
	for _, c := range []struct {
		addr        string
		development bool
	}{{"127.0.0.1:8080", false}, {"0.0.0.0:8080", true}, {":8080", true}, {"[::]:8080", true}, {"10.0.0.1:8080", true}, {"jobs.example.com:8080", true}} {
		_, err := New(Config{Engine: s.client, Read: nilReader{}, Metrics: newMetrics(), Addr: c.addr, Development: c.development})
		if err == nil || !strings.Contains(err.Error(), "BOOTSTRAP_TOKEN") {
			t.Errorf("New(%s, development %t) = %v, want a refusal that names BOOTSTRAP_TOKEN", c.addr, c.development, err)
		}
	}
}

// TestG7ForeignSitesAreRefused is pitfall G7: nothing changes for a forged request,
// not even with the token.
func TestG7ForeignSitesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.PublicURL = "https://jobs.example.com" })
	host := strings.TrimPrefix(s.url, "http://")
	for name, headers := range map[string][]string{
		"cross-site": {"Sec-Fetch-Site", "cross-site"}, "same-site": {"Sec-Fetch-Site", "same-site"}, "odd": {"Sec-Fetch-Site", "?"},
		"origin null": {"Origin", "null"}, "foreign origin": {"Origin", "https://evil.example"}, "another port": {"Origin", "http://127.0.0.1:1"},
		"suffix": {"Origin", "https://jobs.example.com.evil.example"}, "prefix": {"Origin", "https://evil-jobs.example.com"},
		"foreign host": {"Host", "evil.example"}, "host by prefix": {"Host", "localhost.evil.example"}, "host by suffix": {"Host", "eviljobs.example.com"},
		"other address": {"Host", "203.0.113.7"}, "both": {"Sec-Fetch-Site", "same-origin", "Origin", "https://evil.example"},
	} {
		s.post(`{"type":"email"}`, headers...).refused(name, http.StatusForbidden, "forbidden", "")
	}
	s.nothingStored()
	for name, headers := range map[string][]string{
		"a program": nil, "own page": {"Sec-Fetch-Site", "same-origin", "Origin", "http://" + host}, "typed": {"Sec-Fetch-Site", "none"},
		"public": {"Host", "jobs.example.com", "Origin", "https://jobs.example.com"}, "public with port": {"Host", "JOBS.example.com:443"},
		"localhost": {"Host", "localhost:1234"}, "loopback": {"Host", "[::1]:80"}, "through a proxy": {"Origin", "https://jobs.example.com"},
	} {
		if got := s.post(`{"type":"email"}`, headers...); got.status != http.StatusCreated {
			t.Errorf("%s = %d %s, want 201", name, got.status, got.body)
		}
	}
	if got := s.send("GET", "/healthz", nil, "Host", "10.1.2.3"); got.status != 200 {
		t.Errorf("a probe by address = %d, want 200", got.status)
	}
	s.do("GET", "/api/v1/jobs", "", "Host", "evil.example").refused("a read for a foreign host", http.StatusForbidden, "forbidden", "")
}

// TestG7NeitherPlainTextNorOverridesWrite is pitfall G7.
func TestG7NeitherPlainTextNorOverridesWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonp",
		"text/plain; application/json", "application/json; charset=utf-16", "application/json, text/plain"} {
		s.do("POST", "/api/v1/jobs", `{"type":"email"}`, "Content-Type", kind).refused("content type "+kind, http.StatusUnsupportedMediaType, "unsupported-media-type", "")
	}
	for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		s.do("GET", "/api/v1/jobs/"+id, "", header, "DELETE")
		s.post(`{"type":"email"}`, header, "DELETE")
	}
	s.do("GET", "/api/v1/jobs/"+id+"?_method=DELETE", "").refused("_method", 400, "bad-query", "_method")
	if got := s.do("GET", "/api/v1/jobs/"+id, "").text("status"); got != "pending" {
		t.Errorf("job is %s after overrides, want pending", got)
	}
}

func TestOtherMethodsAre405AndListWhatIsAllowed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, allow := range map[string][]string{
		"/api/v1/jobs": {"GET", "POST"}, "/api/v1/jobs/" + uuid.NewString(): {"GET", "HEAD", "PATCH", "DELETE"}, "/api/v1/queues": {"GET", "HEAD"},
		"/api/v1/dlq/" + uuid.NewString() + "/replay": {"POST"},
	} {
		got := s.do("PUT", path, "")
		got.refused("PUT "+path, http.StatusMethodNotAllowed, "method-not-allowed", "")
		for _, m := range allow {
			if !strings.Contains(got.header.Get("Allow"), m) {
				t.Errorf("PUT %s: Allow is %q, want %s in it", path, got.header.Get("Allow"), m)
			}
		}
	}
	s.do("GET", "/nothing/here", "").refused("an unknown path", http.StatusNotFound, "not-found", "")
	s.do("GET", "/console", "").refused("a page that is not there", http.StatusNotFound, "not-found", "")
}

// TestG4OddPathsAndParameters is pitfall G4.
func TestG4OddPathsAndParameters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(`{"type":"email"}`)
	long := strings.Repeat("a", 8192)
	for path, place := range map[string]string{
		"?page=-1": "page", "?page=0": "page", "?page=99999999999999999999": "page", "?page=1.5": "page", "?page=": "page", "?page=501": "page",
		"?limit=0": "limit", "?limit=201": "limit", "?limit=+5": "limit", "?limit=5&limit=6": "limit", "?limit[]=5": "limit[]", "?page=51&limit=200": "page",
		"?status=bogus": "status", "?status=": "status", "?status=pending,": "status", "?priority=6": "priority", "?priority=-1": "priority",
		"?priority=1.0": "priority", "?priority=urgent": "priority", "?sort=id;drop": "", "?type=%00": "type", "?type=%ff": "type", "?queue=a%0ab": "queue",
		"?statsu=failed": "statsu", "?cursor=xyz": "cursor", "?cursor=": "cursor", "?cursor=" + long: "cursor", "?%zz=1": "", "?cursor=e30": "cursor",
		"?page=1&cursor=eyJvZiI6IiJ9": "page", "?%22onmouseover=%22=1": "\"onmouseover", "?type=" + long: "type",
	} {
		s.do("GET", "/api/v1/jobs"+path, "").refused(cutAt(path, 60), http.StatusBadRequest, "bad-query", place)
	}
	if got := s.do("GET", "/api/v1/jobs?statsu=failed", "").text("errors", "0", "detail"); got != "did you mean status?" {
		t.Errorf("detail of statsu = %q", got)
	}
	for _, id := range []string{"1", "%00", "..%2f..%2fetc", "%22onmouseover=%22", "00000000-0000-0000-0000-00000000000g", "{" + uuid.NewString() + "}",
		"urn:uuid:" + uuid.NewString(), uuid.NewString(), long, "%ff", "null"} {
		for _, path := range []string{"/api/v1/jobs/" + id, "/jobs/" + id, "/api/v1/jobs/" + id + "/attempts", "/api/v1/jobs/" + id + "/result", "/api/v1/dlq/" + id, "/api/v1/queues/" + id + "x"} {
			s.do("GET", path, "").refused("GET "+cutAt(path, 60), http.StatusNotFound, "not-found", "")
		}
		s.do("DELETE", "/jobs/"+id, "").refused("DELETE "+cutAt(id, 60), http.StatusNotFound, "not-found", "")
		s.do("POST", "/api/v1/dlq/"+id+"/replay", "").refused("replay "+cutAt(id, 60), http.StatusNotFound, "not-found", "")
	}
	for path, place := range map[string]string{"?reason=bogus": "reason", "?discarded=maybe": "discarded", "?cursor=e30": "cursor", "?status=dead": "status", "?limit=1000": "limit"} {
		s.do("GET", "/api/v1/dlq"+path, "").refused("dlq "+path, http.StatusBadRequest, "bad-query", place)
	}
	s.do("GET", "/api/v1/queues?x=1", "").refused("queues?x", http.StatusBadRequest, "bad-query", "x")
	s.do("POST", "/api/v1/jobs?dry_run=1", `{"type":"email"}`, "Content-Type", "application/json").refused("POST with a query", http.StatusBadRequest, "bad-query", "dry_run")
}

func cutAt(s string, n int) string { return s[:min(n, len(s))] }

func TestRequestIDsAreEchoedWhenTheyAreFit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for given, kept := range map[string]bool{
		"req-1": true, "0193b6a2-71c0": true, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "a b": false, `"><script>`: false, "": false, "ä": false,
	} {
		got := s.do("GET", "/healthz", "", "X-Request-Id", given).header.Get("X-Request-Id")
		if (got == given) != kept || got == "" {
			t.Errorf("X-Request-Id %q gave %q", given, got)
		}
	}
}

func TestRequestsAreLoggedWithoutSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.post(`{"type":"email","payload":{"password":"hunter2"}}`, "X-Request-Id", "req-7")
	s.send("GET", "/healthz", nil)
	log := s.log.String()
	for _, want := range []string{`"msg":"request"`, `"method":"POST"`, `"route":"/api/v1/jobs"`, `"status":201`, `"duration_ms":`, `"bytes":`,
		`"request_id":"req-7"`, `"actor":"bootstrap"`} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "hunter2") || strings.Contains(log, apiToken) {
		t.Errorf("log holds a secret:\n%s", log)
	}
	if i := strings.Index(log, `"route":"/healthz"`); i < 0 || !strings.Contains(log[:i][strings.LastIndex(log[:i], "\n")+1:], `"level":"DEBUG"`) {
		t.Errorf("a probe is not at DEBUG:\n%s", log)
	}
}
