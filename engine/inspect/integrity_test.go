package inspect_test

import (
	"slices"
	"testing"
	"time"
)

func TestTheLastIntegrityCheckIsRead(t *testing.T) {
	s := newStage(t)
	if i, err := s.r.Integrity(s.ctx); err != nil || i != nil {
		t.Fatalf("before the first check: %+v, %v", i, err)
	}
	s.exec(`INSERT INTO integrity_checks (checked_at, took_ms, verdict, rules, violated, unchecked) VALUES (now() - interval '2 h', 800, 'violated', 20, '{one_place}', '{}')`)
	s.exec(`INSERT INTO integrity_checks (checked_at, took_ms, verdict, rules, violated, unchecked) VALUES (now() - interval '1 h', 30000, 'unchecked', 20, '{}', '{one_place,tokens_rise}')`)
	i, err := s.r.Integrity(s.ctx)
	if err != nil || i == nil {
		t.Fatalf("Integrity = %+v, %v", i, err)
	}
	if i.Verdict != "unchecked" || i.Took != 30*time.Second || i.Rules != 20 || len(i.Violated) != 0 || !slices.Equal(i.Unchecked, []string{"one_place", "tokens_rise"}) {
		t.Errorf("Integrity = %+v", i)
	}
	if i.Age < time.Hour || i.Age > time.Hour+time.Minute || i.At.Sub(i.CompleteAt).Round(time.Minute) != time.Hour {
		t.Errorf("age %s, last complete %s before it", i.Age, i.At.Sub(i.CompleteAt))
	}
	snapshot, err := s.r.Snapshot(s.ctx, 0)
	if err != nil || snapshot.Integrity == nil || snapshot.Integrity.Verdict != "unchecked" {
		t.Errorf("the snapshot has %+v, %v", snapshot, err)
	}
}
