package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// wireStats is what jobctl reads of /api/v1/stats.
type wireStats struct {
	At      *time.Time  `json:"at"`
	Verdict wireVerdict `json:"verdict"`
	Flow    struct {
		PerMinute struct {
			Enqueued  float64 `json:"enqueued"`
			Completed float64 `json:"completed"`
			Ended     float64 `json:"ended"`
		} `json:"per_minute"`
		Backlog *int64 `json:"backlog_change_15_minutes"`
	} `json:"flow"`
	Failing struct {
		Runs5    int64 `json:"runs_5_minutes"`
		Failed5  int64 `json:"failed_5_minutes"`
		Runs60   int64 `json:"runs_60_minutes"`
		Failed60 int64 `json:"failed_60_minutes"`
		Groups   []struct {
			wireError
			Type    string     `json:"type"`
			N       int64      `json:"failed_60_minutes"`
			FirstAt *time.Time `json:"first_at"`
		} `json:"groups"`
	} `json:"failing"`
	Stuck struct {
		Queues []struct {
			wireQueue
			Drain *float64 `json:"drain_seconds"`
		} `json:"queues"`
	} `json:"stuck"`
	Workers struct {
		Live     int `json:"live"`
		Late     int `json:"late"`
		Lost     int `json:"lost"`
		Draining int `json:"draining"`
		Slots    struct {
			Busy  int64 `json:"busy"`
			Total int64 `json:"total"`
			Stuck int64 `json:"stuck"`
		} `json:"slots"`
		Reaped int64              `json:"runs_lost_15_minutes"`
		Passes map[string]float64 `json:"last_pass_seconds"`
	} `json:"workers"`
	Changed []struct {
		At     *time.Time `json:"at"`
		Action string     `json:"action"`
		Target string     `json:"target"`
		By     string     `json:"by"`
		Source string     `json:"source"`
		Reason string     `json:"reason"`
	} `json:"changed"`
	Dead struct {
		Total int64 `json:"total"`
		Hour  int64 `json:"died_60_minutes"`
	} `json:"dead_letters"`
}

type wireVerdict struct {
	Level string     `json:"level"`
	Text  string     `json:"text"`
	Cause string     `json:"cause,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Also  []string   `json:"also"`
}

// answers writes the five answers, each under its question.
func (s wireStats) answers(b *strings.Builder, a *app) {
	for _, q := range []struct {
		question, answer string
		lines            [][]string
	}{
		{"Is work flowing?", s.flow(), nil},
		{"What is failing?", s.failing(), s.failureLines()},
		{"Where is it stuck?", s.stuck(), s.stuckLines()},
		{"Are the workers alive?", s.workers(), nil},
		{"What changed?", s.changed(), s.changeLines()},
	} {
		fmt.Fprintf(b, "\n%s %s\n", q.question, printable(q.answer))
		if len(q.lines) == 0 {
			continue
		}
		for _, cells := range q.lines {
			cells[0] = "  " + cells[0]
			for i := range cells {
				cells[i] = printable(cells[i])
			}
		}
		writeAligned(b, q.lines, func(int) bool { return false }, a.colour)
	}
}

func (s wireStats) flow() string {
	f := s.Flow
	change := "by more than can be counted"
	if f.Backlog != nil {
		change = fmt.Sprintf("%+d", *f.Backlog)
	}
	return fmt.Sprintf("%s enqueued, %s runs ended, %s completed a minute; backlog %s in 15 min",
		perMinute(f.PerMinute.Enqueued), perMinute(f.PerMinute.Ended), perMinute(f.PerMinute.Completed), change)
}

func (s wireStats) failing() string {
	f := s.Failing
	return fmt.Sprintf("%d of %d runs in 5 min%s, %d of %d in 60 min; dead letters: %d, %d in 60 min",
		f.Failed5, f.Runs5, percent(f.Failed5, f.Runs5), f.Failed60, f.Runs60, s.Dead.Total, s.Dead.Hour)
}

func percent(part, all int64) string {
	if part == 0 || all == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.1f %%)", 100*float64(part)/float64(all))
}

func (s wireStats) failureLines() (lines [][]string) {
	for _, g := range s.Failing.Groups {
		lines = append(lines, []string{whole(g.N), g.Type, oneLine(cmp.Or(g.text(), "without an error"), 80), "since " + clockTime(g.FirstAt), g.Fingerprint})
	}
	return lines
}

func (s wireStats) stuck() string {
	if len(s.Stuck.Queues) == 0 {
		return "nowhere, no job waits"
	}
	return ""
}

func (s wireStats) stuckLines() (lines [][]string) {
	for _, q := range s.Stuck.Queues {
		waits, why := "oldest "+orWord(q.oldest(), "none"), "not draining"
		switch {
		case q.Paused:
			waits, why = "paused", oneLine(q.PausedReason, 60)
		case q.Workers == 0 && q.Depth.Ready > 0:
			why = "no worker"
		case q.Drain != nil:
			why = "drains in " + span(time.Duration(*q.Drain*float64(time.Second)))
		}
		lines = append(lines, []string{q.Name, waits, whole(q.Depth.Ready) + " ready", why})
	}
	return lines
}

func (s wireStats) workers() string {
	w := s.Workers
	text := fmt.Sprintf("%d live, %d late, %d lost", w.Live, w.Late, w.Lost)
	if w.Draining > 0 {
		text += fmt.Sprintf(", %d draining", w.Draining)
	}
	text += fmt.Sprintf("; %d of %d slots busy", w.Slots.Busy, w.Slots.Total)
	if w.Slots.Stuck > 0 {
		text += fmt.Sprintf(", %d stuck", w.Slots.Stuck)
	}
	text += fmt.Sprintf("; %d runs lost in 15 min; last reaper pass ", w.Reaped)
	if age, ok := w.Passes["reaper"]; ok {
		return text + span(time.Duration(age*float64(time.Second))) + " ago"
	}
	return text + "none yet"
}

func (s wireStats) changed() string {
	if len(s.Changed) == 0 {
		return "nothing, as far back as is kept"
	}
	return ""
}

func (s wireStats) changeLines() (lines [][]string) {
	for _, e := range s.Changed {
		target := e.Target
		if len(target) == 36 { // an id: whole in --json
			target = "…" + target[28:]
		}
		lines = append(lines, []string{clockTime(e.At), e.Action, oneLine(target, 40), "by " + oneLine(e.By, 40) + ", " + e.Source, oneLine(e.Reason, 60)})
	}
	return lines
}

// next is the command that looks closer; empty where all is well.
func (s wireStats) next() string {
	switch {
	case s.Verdict.Level == "healthy":
		return ""
	case s.At == nil:
		return "Ask the database itself with: jobctl doctor"
	case s.Dead.Hour > 0:
		return "Look closer with: jobctl dlq list"
	}
	return "Look closer with: jobctl queues list -o wide"
}
