package web

import (
	"net/http"
	"strings"
	"testing"
)

// The System page says what the last check of the stored history found, and what
// to do about it.
func TestTheSystemPageTellsOfTheLastCheck(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.get("/system").shows("before the first check", http.StatusOK, "Integrity", "none yet", "jobctl verify")

	s.exec(`INSERT INTO integrity_checks (took_ms, verdict, rules, violated, unchecked) VALUES (1234, 'ok', 20, '{}', '{}')`)
	good := s.get("/system")
	good.shows("a clean history", http.StatusOK, "every rule holds", "1.234s", "20")
	if strings.Contains(good.body, "breaks") {
		t.Error("a clean history is warned of")
	}

	s.exec(`INSERT INTO integrity_checks (took_ms, verdict, rules, violated, unchecked) VALUES (50, 'violated', 20, '{one_place,tokens_rise}', '{trail_is_whole}')`)
	s.get("/system").shows("a broken history", http.StatusOK, "The stored history breaks 2 rules.", "violated", "one_place, tokens_rise", "trail_is_whole",
		"run jobctl verify: it names the jobs and leases")

	s.exec(`INSERT INTO integrity_checks (took_ms, verdict, rules, violated, unchecked) VALUES (30000, 'unchecked', 20, '{}', '{one_place}')`)
	s.get("/system").shows("a check that could not look", http.StatusOK, "could not be checked", "see this server's log")
}
