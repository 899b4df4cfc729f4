// Package mutants seeds known defects, each a small replacement in the source,
// so that a build tagged mutants can show that some test finds each. Anchors that
// no longer apply are found by the ordinary tests.
package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces one piece of a file. Old must stand in it exactly once, so that
// a change of the code around it is told and not stepped over.
type Edit struct{ File, Old, New string }

// Suite is a short selection of tests: a package and a pattern of its tests.
type Suite struct{ Package, Run string }

// Mutant is one defect and the tests that should find it, the likeliest first.
type Mutant struct {
	Name   string
	What   string // what goes wrong, in a sentence
	Edits  []Edit
	Suites []Suite
}

// Apply makes the edits in the tree below root.
func (m Mutant) Apply(root string) error {
	for _, e := range m.Edits {
		name := filepath.Join(root, filepath.FromSlash(e.File))
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		if n := strings.Count(string(content), e.Old); n != 1 {
			return fmt.Errorf("mutant %s: in %s its anchor stands %d times, want once:\n%s", m.Name, e.File, n, e.Old)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(content), e.Old, e.New, 1)), 0o600); err != nil {
			return fmt.Errorf("mutant %s: %w", m.Name, err)
		}
	}
	return nil
}
