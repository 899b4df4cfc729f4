package inspect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

func TestAuditPagesNewestFirst(t *testing.T) {
	s := newStage(t)
	for range 5 {
		s.exec(`SELECT record_operator_action('ann', 'console', 'replay', 'job', 'x1', NULL, NULL, NULL, 1, NULL, NULL)`)
	}
	s.exec(`SELECT record_operator_action('bob', 'api', 'cancel', 'job', 'x2', NULL, NULL, NULL, 1, NULL, NULL)`)
	list, next, err := s.r.Audit(s.ctx, inspect.AuditFilter{Actor: "an", Limit: 3})
	if err != nil || len(list) != 3 || next != list[2].ID || list[0].ID < list[1].ID {
		t.Fatalf("Audit = %v, %d, %v, want the newest 3 of ann", list, next, err)
	}
	list, next, err = s.r.Audit(s.ctx, inspect.AuditFilter{Actor: "an", Limit: 3, Before: next})
	if err != nil || len(list) != 2 || next != 0 {
		t.Errorf("second page = %v, %d, %v, want 2 and the end", list, next, err)
	}
}

// The trail's ids follow the commits, its times the beginnings: a filter of time must
// find an act whose transaction began before one that it follows.
func TestAuditByTimeAndSource(t *testing.T) {
	s := newStage(t)
	began := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for i, at := range []int{0, 60, 50, 70, 120, 110, 400, 390} { // minutes
		s.exec(`INSERT INTO operator_actions VALUES ($1, $2, 'ann', $3, 'cancel', 'job', 'x', NULL, NULL, NULL, 1, NULL, NULL, '', '')`,
			i+1, began.Add(time.Duration(at)*time.Minute), []string{"api", "cli"}[i%2])
	}
	at := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		f    inspect.AuditFilter
		want string
	}{
		"all":                {inspect.AuditFilter{}, "8 7 6 5 4 3 2 1"},
		"since":              {inspect.AuditFilter{Since: at(60)}, "8 7 6 5 4 2"},
		"since, out of turn": {inspect.AuditFilter{Since: at(55)}, "8 7 6 5 4 2"},
		"until":              {inspect.AuditFilter{Until: at(60)}, "3 1"},
		"until is outside":   {inspect.AuditFilter{Until: at(50)}, "1"},
		"between":            {inspect.AuditFilter{Since: at(50), Until: at(111)}, "6 4 3 2"},
		"the last, late":     {inspect.AuditFilter{Since: at(395)}, "7"},
		"the last but one":   {inspect.AuditFilter{Since: at(385), Until: at(395)}, "8"},
		"nothing then":       {inspect.AuditFilter{Since: at(200), Until: at(300)}, ""},
		"before all":         {inspect.AuditFilter{Until: at(0)}, ""},
		"after all":          {inspect.AuditFilter{Since: at(10_000)}, ""},
		"by source":          {inspect.AuditFilter{Source: "cli", Until: at(100)}, "4 2"},
		"by no source":       {inspect.AuditFilter{Source: "go"}, ""},
	} {
		c.f.Limit = 2
		var got []string
		for pages := 0; ; pages++ {
			list, next, err := s.r.Audit(s.ctx, c.f)
			if err != nil || pages > 8 {
				t.Fatalf("%s: %v, %d pages", name, err, pages)
			}
			for _, a := range list {
				got = append(got, fmt.Sprint(a.ID))
			}
			if c.f.Before = next; next == 0 {
				break
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: acts %v, want %s", name, got, c.want)
		}
	}
}

// A filter that fits little is bounded by its stretches, and finds it all the same.
func TestAuditFindsWhatIsRare(t *testing.T) {
	s := newStage(t)
	s.exec(`INSERT INTO operator_actions SELECT i, now() - (60000 - i) * interval '1 s', CASE WHEN i IN (3, 30000) THEN 'bob' ELSE 'ann' END, 'api', 'cancel', 'job', 'x',
		NULL, NULL, NULL, 1, NULL, NULL, '', '' FROM generate_series(1, 60000) AS i`)
	list, next, err := s.r.Audit(s.ctx, inspect.AuditFilter{Actor: "bob"})
	if err != nil || next != 0 || len(list) != 2 || list[0].ID != 30000 || list[1].ID != 3 {
		t.Errorf("bob's acts: %d of them, next %d, %v", len(list), next, err)
	}
	list, next, err = s.r.Audit(s.ctx, inspect.AuditFilter{Limit: 200})
	if err != nil || len(list) != 200 || next != 59801 {
		t.Errorf("a page: %d acts, next %d, %v", len(list), next, err)
	}
}
