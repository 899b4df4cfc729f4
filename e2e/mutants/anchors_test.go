package mutants

import (
	"os"
	"path/filepath"
	"testing"
)

const root = "../.."

// A mutant whose anchor is gone tests nothing. Whoever changes such a place
// changes the mutant with it.
func TestEveryMutantStillApplies(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range All {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			copied := t.TempDir()
			for _, e := range m.Edits {
				content, err := os.ReadFile(filepath.Join(root, e.File))
				if err != nil {
					t.Fatal(err)
				}
				name := filepath.Join(copied, e.File)
				if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Apply(copied); err != nil {
				t.Error(err)
			}
		})
		if seen[m.Name] || m.What == "" || len(m.Edits) == 0 || len(m.Suites) == 0 {
			t.Errorf("mutant %q is there twice, or says too little", m.Name)
		}
		seen[m.Name] = true
	}
}
