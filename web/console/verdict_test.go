package console

import (
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// calm is an installation where nothing is wrong.
func calm() signs {
	return signs{
		Queues: []inspect.Queue{{Name: "mail", Depth: inspect.Depth{Ready: 3}, Workers: 2, OldestReady: time.Second}},
		Target: time.Minute, ReaperAge: 3 * time.Second, ReaperInterval: 5 * time.Second, Runs5: 1000, Failed5: 50,
	}
}

func TestTheVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*signs)
		level  views.State
		text   string
		link   string
		others string
	}{
		{"nothing is wrong, 5 % exactly", func(*signs) {}, views.LevelHealthy, "work flows, nothing waits longer than it should", "", ""},
		{"an empty installation without a reaper", func(s *signs) { *s = signs{ReaperAge: -1, Target: time.Minute} }, views.LevelHealthy, "work flows", "", ""},
		{"the database is away", func(s *signs) { s.Unreachable, s.Stale = true, "no fresh data since 02:14:07 UTC" },
			views.LevelCritical, "the database does not answer; no fresh data since 02:14:07 UTC", "system", ""},
		{"the figures are late", func(s *signs) { s.Late, s.Stale = true, "no fresh data since 02:14:07 UTC" }, views.LevelDegraded, "the figures are late", "system", ""},
		{"ready jobs without a worker", func(s *signs) { s.Queues[0].Workers = 0 }, views.LevelCritical, "no worker serves mail; 3 ready jobs wait", "workers", ""},
		{"a paused queue without a worker is paused only", func(s *signs) { s.Queues[0].Workers, s.Queues[0].Paused = 0, true }, views.LevelDegraded, "mail is paused", "queues", ""},
		{"three intervals of the reaper exactly", func(s *signs) { s.ReaperAge = 15 * time.Second }, views.LevelHealthy, "work flows", "", ""},
		{"a silent reaper", func(s *signs) { s.ReaperAge = 16 * time.Second }, views.LevelCritical, "the reaper has been silent for 16 s", "system", ""},
		{"a reaper that is about to run first", func(s *signs) { s.ReaperAge, s.Watched = -1, 15*time.Second }, views.LevelHealthy, "work flows", "", ""},
		{"a reaper that never ran", func(s *signs) { s.ReaperAge, s.Watched = -1, 16*time.Second }, views.LevelCritical, "the reaper has not run yet", "system", ""},
		{"more than 5 % of the runs failed", func(s *signs) { s.Failed5 = 51 }, views.LevelDegraded, "5.1 % of 1,000 runs failed in 5 min", "types", ""},
		{"all of few runs failed", func(s *signs) { s.Runs5, s.Failed5 = 19, 19 }, views.LevelHealthy, "work flows", "", ""},
		{"twenty runs are enough", func(s *signs) { s.Runs5, s.Failed5 = 20, 2 }, views.LevelDegraded, "10 % of 20 runs failed in 5 min", "types", ""},
		{"a job waits longer than the target", func(s *signs) { s.Queues[0].OldestReady = 161 * time.Second }, views.LevelDegraded, "mail waits 2 min 41 s (target 1 min)", "mail", ""},
		{"a death in 5 minutes", func(s *signs) {
			s.Deaths = inspect.Deaths{N: 325, Recent: 9, TopN: 312, Top: inspect.Failure{Class: "GatewayTimeout", Fingerprint: "v1:9f"}, Type: "charge", Queue: "billing"}
		}, views.LevelDegraded, "325 jobs died in the last hour, 96 % with one error", "billing / charge / GatewayTimeout", ""},
		{"an old death", func(s *signs) { s.Deaths = inspect.Deaths{N: 3} }, views.LevelHealthy, "work flows", "", ""},
		{"a lost run", func(s *signs) { s.Reaped5, s.LostWorkers = 1, 1 }, views.LevelDegraded, "1 run was lost with its worker in 5 min, 1 worker lost", "workers", ""},
		{"critical comes before what stands first", func(s *signs) {
			s.Deaths, s.ReaperAge = inspect.Deaths{N: 1, Recent: 1}, time.Hour
			s.Queues = append(s.Queues, inspect.Queue{Name: "bulk", Paused: true})
		}, views.LevelCritical, "the reaper has been silent for 1 h", "system", "1 job died in the last hour, bulk is paused"},
	} {
		s := calm()
		c.change(&s)
		v := judge(s)
		if v.level != c.level || !strings.HasPrefix(v.text, c.text) || v.link != c.link || strings.Join(v.others, ", ") != c.others {
			t.Errorf("%s: %s, %q, to %q, also %q; want %s, %q, to %q, also %q", c.name, v.level, v.text, v.link, v.others, c.level, c.text, c.link, c.others)
		}
	}
}
