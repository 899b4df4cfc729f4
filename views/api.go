package views

// API is the reference of the JSON API, from its document.
type API struct {
	Frame    Frame
	Document string // where a program reads it
	Text     []string
	Common   []APIAnswer // given by many operations
	Groups   []APIGroup
	Schemas  []APISchema
}

// APIGroup are the operations of one tag. Twins are what others answer under an older path.
type APIGroup struct {
	ID, Name, Text string
	Operations     []APIOperation
	Twins          []string
}

// APIOperation is a method of a path.
type APIOperation struct {
	ID, Method, Path, Summary string
	Text                      []string
	Needs                     string // whose token
	Parameters                []APIField
	Body                      *APIBody
	Answers                   []APIAnswer
	Common                    string // statuses of the answers that are told once
	Curl                      string
}

// APIBody is what a request sends. Fields has those of a body that only this one sends.
type APIBody struct {
	Text     string
	Required bool
	Type     APIType
	Fields   []APIField
}

// APIField is a parameter, or a field of an object.
type APIField struct {
	Name, In   string
	Required   bool
	Type       APIType
	Rule, Text string
}

// APIType names a type, and the schema that it is explained by, if it is one.
type APIType struct{ Name, Schema string }

// APIAnswer is one status. Codes are those of its problem.
type APIAnswer struct {
	Status, Text string
	Type         APIType
	Codes        []string
	Headers      string
}

// APISchema is an object that several operations know.
type APISchema struct {
	Name, Text, Rule string
	Fields           []APIField
}

// scrollLabel names a table's region for those who do not see it.
func (o APIOperation) scrollLabel(what string) string { return what + " of " + o.Method + " " + o.Path }
