package config

import (
	"fmt"
	"strings"
)

// exampleHeader opens .env.example.
const exampleHeader = `# Settings of the Reliable Job Engine. Copy this file to .env and change what you need:
# make run, make dev, make migrate-up and the like load .env, if there is one.
#
# Every line holds the default. A value is all that follows the first =, in quotes if
# it has spaces; a # begins a comment only at the start of a line. What is set in the
# environment already wins over .env. Set but empty counts as unset. Durations have
# a unit: 500ms, 30s, 5m, 24h. A name marked "secret" may also be given as NAME_FILE,
# the path of a file that holds it.
`

// Example is the text of .env.example.
func Example() string {
	var b strings.Builder
	b.WriteString(exampleHeader)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n# --- %s ---\n", g.title)
		for _, s := range g.settings {
			fmt.Fprintf(&b, "\n# %s\n", describe(s))
			if !s.shown {
				b.WriteString("#")
			}
			fmt.Fprintf(&b, "%s=%s\n", s.name, s.def)
		}
	}
	return b.String()
}

// Help is every setting with its default and meaning, for a terminal.
func Help() string {
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "%s\n", g.title)
		for _, s := range g.settings {
			def := s.def
			if def != "" {
				def = " (" + def + ")"
			}
			fmt.Fprintf(&b, "  %s%s\n      %s\n", s.name, def, describe(s))
		}
	}
	return b.String()
}

func describe(s setting) string {
	text := s.help
	if s.derived != "" {
		text += "; default: " + s.derived
	}
	if s.secret {
		text += "; secret"
	}
	if len(s.also) > 0 {
		text += "; also read: " + strings.Join(s.also, ", ")
	}
	return text
}
