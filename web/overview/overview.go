// Package overview is what the console's first page answers, as data: the verdict
// and the five questions of somebody who was just woken. The console makes it of
// the figures that it has read for all; the API hands it on.
package overview

import (
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// Level is how bad things stand.
type Level string

// The levels, from well to worst.
const (
	Healthy  Level = "healthy"
	Degraded Level = "degraded"
	Critical Level = "critical"
)

// Overview is one reading. A list is empty where nothing is to be told, never nil.
type Overview struct {
	// At is when the figures were read, by the server's clock.
	At      time.Time
	Verdict Verdict
	Flow    Flow
	Failing Failing
	Stuck   Stuck
	Workers Workers
	Changed []Change
	Dead    Dead
}

// Verdict is the worst that is wrong in a sentence without its full stop, and all
// else that is.
type Verdict struct {
	Level Level
	Text  string
	// Cause names what Text points to, where there is one.
	Cause string
	Since time.Time
	Also  []string
}

// Flow answers whether work flows. Rates are per minute, over the last five.
type Flow struct {
	Enqueued, Completed, Ended float64
	// Backlog is the net change over 15 minutes; Uncounted if more came in than can
	// be counted.
	Backlog   int64
	Uncounted bool
}

// Failing answers what fails.
type Failing struct {
	Runs5, Failed5, Runs60, Failed60 int64
	Groups                           []inspect.FailureGroup // the three commonest errors of an hour
}

// Stuck answers where it is stuck: the queues that wait longest, and those paused.
type Stuck struct {
	Target time.Duration // how long a ready job may wait
	Queues []inspect.Queue
}

// Workers answers whether the workers are alive.
type Workers struct {
	Fleet    inspect.Fleet
	Reaped15 int64 // runs that were taken back in 15 minutes
	// Tasks are the upkeep's last passes.
	Tasks []inspect.Task
}

// Change answers what changed: an act of an operator, or a build first seen, whose
// Action is "build".
type Change struct {
	At                         time.Time
	Action, TargetKind, Target string
	By, Source, Reason         string
}

// Dead counts the dead letters that are not discarded, and those of the last hour.
type Dead struct{ Total, LastHour int64 }

// Drain is when a queue would be empty at the pace of the last five minutes; ok is
// false if it would not be.
func Drain(q *inspect.Queue) (d time.Duration, ok bool) {
	net := q.PerMinute.Completed - q.PerMinute.Enqueued
	if q.Depth.Ready == 0 || q.Workers == 0 || net <= 0 {
		return 0, q.Depth.Ready == 0
	}
	minutes := float64(q.Depth.Ready) / net
	if minutes > 30*24*60 {
		return 0, false
	}
	return time.Duration(minutes * float64(time.Minute)), true
}
