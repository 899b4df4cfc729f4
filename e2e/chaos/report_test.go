//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"fmt"
	"time"
)

// report prints the run's figures, and fails a run that broke less than planned:
// faults that did not happen prove nothing.
func (s *storm) report(took time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, n := range s.networks {
		s.counts[cut].Add(n.cutter.done.Load())
	}
	planned := map[string]int64{}
	for _, f := range s.plan {
		planned[f.Kind]++
	}
	for kind, n := range planned {
		if done := s.counts[kind].Load(); done < n*9/10 {
			s.t.Errorf("%d of %d planned: %s", done, n, kind)
		}
	}
	line := fmt.Sprintf("seed %d, %s: %d jobs at the doors", s.seed, took.Round(time.Second), s.size.Jobs)
	for _, q := range []struct{ name, sql string }{
		{"jobs", "SELECT count(*) FROM jobs"}, {"runs", "SELECT count(*) FROM job_executions"},
		{"lost runs", "SELECT count(*) FROM job_executions WHERE outcome = 6"}, {"crashes seen", "SELECT count(*) FROM job_executions WHERE outcome = 7"},
		{"refused writes", "SELECT count(*) FROM refused_writes"}, {"dead", "SELECT count(*) FROM dead_letter_jobs"},
		{"lost answers", "SELECT count(*) FROM evidence.requests WHERE outcome = 'unknown'"},
		{"rolled back", "SELECT count(*) FROM evidence.requests WHERE outcome = 'rolled back'"},
		{"cancelled", "SELECT count(*) FROM evidence.jobs WHERE state = 'cancelled'"},
	} {
		var n int64
		if err := s.pool.QueryRow(ctx, q.sql).Scan(&n); err != nil {
			s.t.Errorf("count %s: %v", q.name, err)
		}
		line += fmt.Sprintf(", %d %s", n, q.name)
	}
	for _, k := range []string{kill, term, freeze, crash, cut, reset, slowdown} {
		line += fmt.Sprintf(", %d %s", s.counts[k].Load(), k)
	}
	s.t.Log(line)
}
