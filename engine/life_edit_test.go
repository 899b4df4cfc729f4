package engine

import "time"

// edit j1 [priority=5] [in=1h] [max=3] [queue=mail] [payload={"n":2}]
func (w *life) edit(a lifeArgs) (string, error) {
	e, err := w.worker("door")
	if err != nil {
		return "", err
	}
	var x Edit
	if _, ok := a.values["priority"]; ok {
		n, err := a.number("priority", 0)
		if err != nil {
			return "", err
		}
		x.Priority = Priority(n).Ptr()
	}
	if _, ok := a.values["in"]; ok {
		d, err := a.duration("in")
		if err != nil {
			return "", err
		}
		at := time.Now().Add(d)
		x.ScheduledAt = &at
	}
	if _, ok := a.values["max"]; ok {
		n, err := a.number("max", 0)
		if err != nil {
			return "", err
		}
		most := int(n)
		x.MaxAttempts = &most
	}
	if s, ok := a.values["queue"]; ok {
		x.Queue = &s
	}
	if s, ok := a.values["payload"]; ok {
		x.Payload = []byte(s)
	}
	if err := e.client.Edit(w.ctx, w.ids[a.names[0]], x, Actor{Name: "script"}); err != nil {
		return "", err
	}
	return w.status(a)
}
