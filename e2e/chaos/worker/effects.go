//go:build linux || darwin || freebsd

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// effectLog is where runs leave traces outside the database. Each line is one
// write to a file opened for appending: several processes share it, and a kill
// cuts no line in two.
type effectLog struct{ file *os.File }

func openEffects(path string) (*effectLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the effects: %w", err)
	}
	return &effectLog{file}, nil
}

// effect is one line.
type effect struct {
	Job    string `json:"job"`
	Token  int64  `json:"token"`
	Worker int64  `json:"worker"`
	PID    int    `json:"pid"`
	Type   string `json:"type"`
	Key    string `json:"key"` // one for each job, however often it runs
	Event  string `json:"event"`
	Err    string `json:"err,omitempty"`
	At     int64  `json:"at"` // Unix microseconds, this machine's clock
}

func (l *effectLog) write(j *job, event string, err error) {
	e := effect{Job: j.ID.String(), Token: j.FencingToken, Worker: j.WorkerID, PID: os.Getpid(), Type: j.Type, Key: j.Args.Ref, Event: event,
		At: time.Now().UnixMicro()}
	if err != nil {
		e.Err = err.Error()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		// The checkers would miss what this run did: better no run at all.
		fmt.Fprintln(os.Stderr, "write an effect:", err)
		os.Exit(4)
	}
}

func (l *effectLog) around(j *job, work func() error) error {
	l.write(j, "begin", nil)
	err := work()
	l.write(j, "end", err)
	return err
}
