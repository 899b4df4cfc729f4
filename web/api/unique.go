package api

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// uniqueFields are the members of an enqueue's unique, in the order of the
// documentation.
var uniqueFields = []string{"key", "scope", "states", "window_seconds", "on_conflict"}

// unique reads the object of that name. What is given is obeyed or refused, so that
// a key is asked for here and the words are the engine's to judge.
func (q *enqueueRequest) unique(m member) {
	if m.value[0] != '{' {
		q.refuse(m.at, "invalid", "an object with key and, if wanted, scope, states, window_seconds, on_conflict")
		return
	}
	members, err := object(m.value)
	if err != nil {
		q.refuse(m.at, "invalid", "an object, each member once")
		return
	}
	u, given := &q.options.Unique, false
	for _, x := range members {
		x.at = m.at + x.at
		switch x.name {
		case "key":
			given = true
			u.Key = q.text(x)
		case "scope":
			u.Scope = engine.UniqueScope(q.text(x))
		case "states":
			q.uniqueStates(x)
		case "window_seconds":
			u.Window = q.window(x)
		case "on_conflict":
			u.OnConflict = engine.OnConflict(q.text(x))
		default:
			q.refuse(x.at, "unknown-field", unknown(x.name, uniqueFields))
		}
	}
	if !given {
		q.refuse(m.at+"/key", "required", "1 to 255 characters")
	}
}

func (q *enqueueRequest) uniqueStates(m member) {
	var list []json.RawMessage
	if m.value[0] != '[' || json.Unmarshal(m.value, &list) != nil || len(list) == 0 || len(list) > 3 {
		q.refuse(m.at, "invalid", "an array: waiting; waiting, running; or waiting, running, dead")
		return
	}
	for i, raw := range list {
		s := q.text(member{m.name, m.at + "/" + strconv.Itoa(i), raw})
		q.options.Unique.States = append(q.options.Unique.States, engine.UniqueState(s))
	}
}

const windowRule = "1 to 31536000 seconds (365 days)"

func (q *enqueueRequest) window(m member) time.Duration {
	s, err := strconv.ParseFloat(string(m.value), 64)
	switch {
	case m.value[0] != '-' && (m.value[0] < '0' || m.value[0] > '9'):
		q.refuse(m.at, "invalid", "a number of seconds")
	case err != nil || s < 1 || s > 31_536_000:
		q.refuse(m.at, "out-of-range", windowRule)
	default:
		return time.Duration(s * float64(time.Second))
	}
	return 0
}

// id reads a job's id as this API writes it.
func (q *enqueueRequest) id(m member) engine.ID {
	s := q.text(m)
	if s == "" {
		return uuid.Nil
	}
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 || id == uuid.Nil {
		q.refuse(m.at, "invalid", "the id of a job")
		return uuid.Nil
	}
	return id
}
