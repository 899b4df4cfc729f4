package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// limits are the values of a field at the edges of what is accepted and just beyond,
// and each other kind of value.
type limits struct {
	field, kinds string
	good, bad    []string
}

func quoted(s string) string { return `"` + s + `"` }

// otherKinds are values that a field of these kinds does not take.
func otherKinds(kinds string) (bad []string) {
	for _, value := range []string{`null`, `"x y"`, `1.25`, `true`, `[]`, `[null]`, `{}`, `{"":1}`} {
		if !strings.Contains(kinds, kindOf(value)) {
			bad = append(bad, value)
		}
	}
	return bad
}

func textLimits(field string, most int, fill string) limits {
	return limits{field, "s", []string{quoted(fill), quoted(strings.Repeat(fill, most-1)), quoted(strings.Repeat(fill, most))},
		[]string{`""`, quoted(strings.Repeat(fill, most+1)), `"a\u0000"`, `"\ud83d"`}}
}

func timeLimits(field string, least time.Time, most time.Duration) limits {
	at := func(t time.Time) string { return quoted(t.UTC().Format(time.RFC3339)) }
	now := time.Now()
	return limits{field, "s", []string{at(least), at(now.Add(most - time.Hour))}, []string{at(least.Add(-time.Second)), at(now.Add(most + time.Hour)), `""`, `"soon"`}}
}

const tenYears = 3653 * 24 * time.Hour

// TestEachFieldAtItsLimits sends min-1, min, max, max+1 and every other kind of value of each
// field: what is beyond is 422 with the field's pointer and stores nothing, what is within is taken.
func TestEachFieldAtItsLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hour := time.Now().Add(time.Hour).Truncate(time.Second)
	holder := s.enqueue(`{"type":"email"}`)
	many := func(n int, value string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]"
	}
	for _, l := range []limits{
		textLimits("type", 100, "a"), textLimits("queue", 100, "a"), textLimits("idempotency_key", 255, "é"),
		{"priority", "sn", []string{"0", "5"}, []string{"-1", "6", "0.5"}},
		{"max_attempts", "n", []string{"1", "2", "99", "100"}, []string{"0", "-1", "101", "1.0", "1e1"}},
		{"timeout_seconds", "n", []string{"0.001", "0.002", "604799.999", "604800"}, []string{"0", "0.0009", "604800.001", "-1", "1e400"}},
		{"delay_seconds", "n", []string{"0", "0.000001", "315000000"}, []string{"-1", "-0.001", "315700000", "1e18", "9223372036854775808"}},
		timeLimits("run_at", time.Unix(0, 0), tenYears), timeLimits("scheduled_at", time.Unix(0, 0), tenYears),
		{"expires_at", "s", []string{quoted(hour.Format(time.RFC3339))}, []string{quoted(hour.Add(-2 * time.Hour).Format(time.RFC3339)), quoted(hour.Add(tenYears * 2).Format(time.RFC3339))}},
		{"copied_from", "s", []string{quoted(holder)}, []string{`""`, `"1"`, quoted(strings.ReplaceAll(holder, "-", "")), quoted("00000000-0000-0000-0000-000000000000")}},
		{"traceparent", "s", []string{`"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`}, []string{`""`, `"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"`, `"00-0af7-b7ad-01"`}},
		{"payload", "o", []string{`{}`, `{"x":"` + strings.Repeat("y", 262144-8) + `"}`, `{"n":1e999}`, nestedObject(64)}, []string{`{"n":1e1000}`, nestedObject(65), `{"a":"\u0000"}`}},
		{"tags", "a", []string{`["a"]`, many(1, quoted(strings.Repeat("a", 50)))}, []string{`[""]`, `[null]`, `[1]`, `"a"`, many(1000, `"a"`)}},
		{"backoff", "o", []string{`{}`, `{"base_seconds":0.001,"max_seconds":0.001}`, `{"base_seconds":86400,"max_seconds":2592000}`}, []string{`{"base_seconds":0.0009}`, `{"base_seconds":86400.001}`,
			`{"base_seconds":2,"max_seconds":1.999}`, `{"max_seconds":2592000.001}`, `{"policy":"never"}`, `{"policy":null}`, `{"base_seconds":[]}`}},
		{"unique", "o", []string{`{"key":"a"}`, `{"key":"b","window_seconds":1}`, `{"key":"` + strings.Repeat("é", 255) + `","window_seconds":31536000}`}, []string{`{}`, `{"key":""}`, `{"key":null}`,
			`{"key":"` + strings.Repeat("é", 256) + `"}`, `{"key":"c","window_seconds":0.999}`, `{"key":"c","window_seconds":31536000.001}`, `{"key":"c","states":[]}`, `{"key":"c","states":["dead"]}`}},
	} {
		body := func(value string) string {
			if l.field == "type" {
				return `{"type":` + value + `}`
			}
			return `{"type":"email",` + quoted(l.field) + `:` + value + `}`
		}
		each := s.bulk(`{"atomic":false,"jobs":[` + body(l.bad[len(l.bad)-1]) + `]}`)
		if !strings.Contains(each.body, `"pointer":"/jobs/0/`+l.field) {
			t.Errorf("%s by itself: %d %.300s", l.field, each.status, each.body)
		}
		before := s.count("SELECT count(*) FROM jobs")
		for _, value := range append(l.bad, otherKinds(l.kinds)...) {
			for what, got := range map[string]reply{"/": s.post(body(value)), "/jobs/0/": s.bulk(`{"jobs":[` + body(value) + `]}`)} {
				name := fmt.Sprintf("%.80s", body(value))
				got.refused(name, http.StatusUnprocessableEntity, "validation-failed", "")
				if place := got.text("errors", "0", "pointer"); !strings.HasPrefix(place, what+l.field) {
					t.Errorf("%s names %q", name, place)
				}
			}
		}
		if n := s.count("SELECT count(*) FROM jobs"); n != before {
			t.Errorf("%s: %d jobs came of what was refused", l.field, n-before)
		}
		for _, value := range l.good {
			if got := s.post(body(value)); got.status != http.StatusCreated {
				t.Errorf("%.80s = %d %.300s, want 201", body(value), got.status, got.body)
			}
		}
	}
}

// TestEachFieldOfAnEditAtItsLimits does the same with PATCH.
func TestEachFieldOfAnEditAtItsLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email","delay_seconds":3600}`)
	for _, l := range []limits{
		textLimits("queue", 100, "a"), {"priority", "sn", []string{"0", "5"}, []string{"-1", "6"}}, {"max_attempts", "n", []string{"1", "100"}, []string{"0", "101"}},
		timeLimits("run_at", time.Unix(0, 0), tenYears), timeLimits("scheduled_at", time.Unix(0, 0), tenYears), {"payload", "o", []string{`{}`, nestedObject(64)}, []string{nestedObject(65), `{"a":"\u0000"}`}},
		{"reason", "s", []string{quoted(strings.Repeat("a", 1000))}, []string{`""`, quoted(strings.Repeat("a", 1001))}},
	} {
		tag := s.tag(id)
		body := func(value string) string { return `{"` + l.field + `":` + value + `}` }
		for _, value := range append(l.bad, otherKinds(l.kinds)...) {
			got := s.patch(id, body(value), "If-Match", "*")
			got.refused(fmt.Sprintf("%.80s", body(value)), http.StatusUnprocessableEntity, "validation-failed", "")
			if !strings.HasPrefix(got.text("errors", "0", "pointer"), "/"+l.field) {
				t.Errorf("%.80s names %s", body(value), got.body)
			}
		}
		if after := s.tag(id); after != tag {
			t.Errorf("%s: what was refused has changed the job", l.field)
		}
		for _, value := range l.good {
			body := body(value)
			if l.field == "reason" {
				body = `{"priority":2,"reason":` + value + `}`
			}
			if got := s.patch(id, body, "If-Match", "*"); got.status != http.StatusOK {
				t.Errorf("%.80s = %d %.300s, want 200", body, got.status, got.body)
			}
		}
	}
}

// TestEachParameterAtItsLimits does the same with the lists' parameters: 400 by name.
func TestEachParameterAtItsLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(`{"type":"email"}`)
	limit := limits{"limit", "", []string{"1", "2", "99", "100"}, []string{"0", "-1", "1000000", "", "01", "1.0", "+1", "1e2", "9223372036854775808"}}
	for path, list := range map[string][]limits{
		"/api/v1/jobs": {limit, {"page", "", []string{"1", "2", "200"}, []string{"0", "-1", "10001", "", "9223372036854775808"}}, {"status", "", []string{"pending", "running,pending"}, []string{"bogus", ",", "PENDING"}},
			{"priority", "", []string{"0", "5", "low"}, []string{"-1", "6", "", "urgent"}}, {"cursor", "", nil, []string{"", "AAAA", "eyJvZiI6IiJ9", strings.Repeat("A", 2000)}},
			{"q", "", []string{"", "state:dead", "age:<1h"}, []string{"state:bogus", "queue:", `"`, strings.Repeat("a ", 60)}}},
		"/api/v1/dlq":        {limit, {"reason", "", []string{"exhausted"}, []string{"bogus", "EXHAUSTED"}}, {"discarded", "", []string{"true", "false"}, []string{"", "1", "TRUE"}}, {"cursor", "", nil, []string{"", "AAAA"}}},
		"/api/v1/operations": {limit, {"cursor", "", nil, []string{"", "AAAA"}}},
		"/api/v1/audit": {limit, {"since", "", []string{"1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"}, []string{"", "1969-12-31T23:59:59Z", "294277-01-01T00:00:00Z", "5"}}, {"source", "", []string{"api"}, []string{"bogus"}},
			{"cursor", "", nil, []string{"", "AAAA"}}},
		"/api/v1/jobs/" + s.enqueue(`{"type":"email"}`): {{"include", "", []string{"logs", "attempts,logs,result,refused_writes"}, []string{"", "bogus", "logs,", "LOGS"}}},
	} {
		for _, l := range list {
			for _, value := range append(l.bad, "a\x00", "\xff", strings.Repeat("a", 2001)) {
				got := s.do("GET", path+"?"+url.Values{l.field: {value}}.Encode(), "")
				got.refused(fmt.Sprintf("%s?%s=%.40q", path, l.field, value), http.StatusBadRequest, "bad-query", l.field)
			}
			for _, value := range l.good {
				if got := s.do("GET", path+"?"+url.Values{l.field: {value}}.Encode(), ""); got.status != http.StatusOK {
					t.Errorf("%s?%s=%q = %d %.300s, want 200", path, l.field, value, got.status, got.body)
				}
			}
			twice := url.Values{l.field: {"1", "1"}}
			if got := s.do("GET", path+"?"+twice.Encode(), ""); got.status != http.StatusBadRequest {
				t.Errorf("%s with %s given twice = %d", path, l.field, got.status)
			}
		}
	}
}
