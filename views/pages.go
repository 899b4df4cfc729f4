package views

// stateHelp is what the help page says of each state.
var stateHelp = []struct {
	state State
	text  string
}{
	{StateReady, "Waits for a worker."},
	{StateScheduled, "Not due yet: its run_at lies ahead."},
	{StateBlocked, "Held back: by other jobs, by a paused type, or because no living worker has a handler for its type."},
	{StateRunning, "A worker holds its lease and the current fencing token."},
	{StateRetrying, "An attempt failed; it waits out its backoff and runs again by itself."},
	{StateCompleted, "Its handler returned no error."},
	{StateDead, "It will not run again by itself: attempts exhausted, a permanent error, poison, or expired. It stands under dead letters."},
	{StateCancelled, "Stopped by a person or through the API before it completed."},
	{StatePaused, "Of a queue: its jobs wait until somebody resumes it."},
	{StateLate, "Of a worker: a heartbeat is missing."},
	{StateLost, "Of a worker: nothing came for as long as its lease lasts; its jobs were taken back."},
	{StateDraining, "Of a worker: it finishes what it runs and claims no more."},
}

func comma2(i int) string {
	if i == 0 {
		return ""
	}
	return ", "
}

// rowClass marks a row that has been dealt with.
func (r DeadRow) rowClass() string {
	if len(r.Done) > 0 {
		return classes("done", r.State.class())
	}
	return ""
}

func (r AuditRow) change() string {
	switch {
	case r.Before == "" && r.After == "":
		return "—"
	case r.Before == "":
		return "→ " + r.After
	case r.After == "":
		return r.Before + " →"
	}
	return r.Before + " → " + r.After
}

func need(n int) string {
	if n == 1 {
		return "needs"
	}
	return "need"
}

func (m NewJob) problem(field string) string {
	for _, p := range m.Problems {
		if p.Field == field {
			return p.Text
		}
	}
	return ""
}

func (m NewJob) describedBy(field string) string {
	if m.problem(field) != "" {
		return "hint-" + field + " flaw-" + field
	}
	return "hint-" + field
}

func (m NewJob) priority() string {
	if m.Fields.Priority == "" {
		return "1"
	}
	return m.Fields.Priority
}

func (f ReasonField) hint() string {
	if f.Hint == "" {
		return "Kept in the audit trail."
	}
	return f.Hint
}

// tooltip is the error whole, as far as the list has it.
func (r DeadRow) tooltip() string {
	if len(r.Done) > 0 {
		return ""
	}
	return r.Error
}
