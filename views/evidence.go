package views

import (
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// jobPace is how often a job's page asks again, in seconds.
func jobPace(m Job) string {
	if m.Running {
		return "2"
	}
	return "5"
}

// anchor keeps a tick's text inside the drawing.
func (p PlaceMark) anchor() string {
	switch {
	case p.At < 0.03:
		return "start"
	case p.At > 0.97:
		return "end"
	}
	return "middle"
}

func (a Attempt) hasEvidence() bool {
	return a.ErrorClass != "" || a.Error != "" || len(a.OwnFrames)+len(a.OtherFrames) > 0 || len(a.Logs) > 0 || len(a.Refused) > 0 || a.Lease != "" || a.Told != ""
}

// summary is the line that opens a run's evidence.
func (a Attempt) summary() string {
	first, _, _ := strings.Cut(a.Error, "\n")
	switch {
	case a.ErrorClass != "" && first != "":
		return a.ErrorClass + ": " + first
	case first != "":
		return first
	case a.ErrorClass != "":
		return a.ErrorClass
	case a.LogsText != "":
		return "Log, " + a.LogsText
	case len(a.Refused) > 0:
		return plural(len(a.Refused), "late write") + " refused"
	}
	return "Details"
}

// note says how large a document is and what of it is not shown.
func (j JSON) note() string {
	parts := []string{j.Size}
	if j.Masked > 0 {
		parts = append(parts, plural(j.Masked, "value")+" masked")
	}
	if j.Cut {
		parts = append(parts, "cut here, whole in the download")
	}
	return strings.Join(parts, ", ")
}

func (n Node) branch() bool { return (n.Kind == "object" || n.Kind == "array") && len(n.Kids) > 0 }

func (n Node) brackets() string {
	if n.Kind == "array" {
		return "[ " + n.Text + " ]"
	}
	return "{ " + n.Text + " }"
}

func (n Node) class() string {
	switch n.Kind {
	case "string":
		return "str"
	case "number":
		return "n"
	case "literal":
		return "lit"
	}
	return "none"
}

// now and said are a progress bar's value, as a number and as it is read out.
func (p Progress) now() string { return strconv.FormatFloat(100*p.Share, 'f', -1, 64) }

func (p Progress) said() string {
	if p.Text == "" {
		return p.Percent
	}
	return p.Percent + ", " + p.Text
}

func (p Progress) width() string { return strconv.FormatFloat(100*p.Share, 'f', 1, 64) + "%" }
