package storeclient

import (
	"context"
	"fmt"
	"strings"
)

// Transaction collects statements that commit together, in one script. The zero Transaction is ready to use.
//
//	var tx storeclient.Transaction
//	for _, item := range cart {
//		tx.Add("CREATE sold CONTENT $item", storeclient.Params{"item": item})
//	}
//	answer, err := tx.Run(ctx, db)
type Transaction struct {
	text   strings.Builder
	params Params
	uses   map[string]int
	err    error
}

// Add adds one or more statements with parameters of their own: equal names in different calls of Add do
// not collide.
func (t *Transaction) Add(statements string, params Params) *Transaction {
	if t.params == nil {
		t.params, t.uses = Params{}, map[string]int{}
	}
	names := map[string]string{}
	for name, value := range params {
		own := name
		for _, taken := t.params[own]; taken; _, taken = t.params[own] {
			t.uses[name]++
			own = fmt.Sprintf("%s__%d", name, t.uses[name])
		}
		names[name], t.params[own] = own, value
	}
	for _, at := range piece.FindAllStringSubmatchIndex(statements, -1) {
		if at[2] < 0 && at[10] >= 0 && t.err == nil {
			switch strings.ToUpper(statements[at[10]:at[11]]) {
			case "BEGIN", "COMMIT":
				t.err = fmt.Errorf("storeclient: a Transaction says BEGIN and COMMIT itself: %.40q", statements)
			}
		}
	}
	t.text.WriteString(renamed(statements, names))
	t.text.WriteString("\n;\n") // on a line of its own: the statements may end in a comment
	return t
}

// renamed returns a text with its parameters under other names; what stands in strings and comments stays.
func renamed(text string, names map[string]string) string {
	return piece.ReplaceAllStringFunc(text, func(found string) string {
		if own, ok := names[strings.TrimPrefix(found, "$")]; ok && found[0] == '$' {
			return "$" + own
		}
		return found
	})
}

// Run commits all statements or none. The answer has the results of the added statements.
func (t *Transaction) Run(ctx context.Context, on *Database, opts ...RunOption) (*Answer, error) {
	if t.err != nil {
		return nil, t.err
	}
	answer, err := on.Run(ctx, "BEGIN;\n"+t.text.String()+"COMMIT", t.params, opts...)
	if err != nil {
		return nil, err
	}
	answer.Results = within(answer.Results, 1)
	return answer, nil
}

// within returns the results of what stood between what a client put before and behind it. RETURN in it
// has ended it before its COMMIT was answered.
func within(results []Result, before int) []Result {
	results = results[min(before, len(results)):]
	if n := len(results); n > 0 && results[n-1].Kind == "none" {
		results = results[:n-1]
	}
	return results
}
