// Package surveyrun makes surveys (package survey) in real time, on whatever port: it has the loop, the clock and the
// waiting that the engine does without, as smrun has for a subnet manager.
//
//	r, err := surveyrun.New(transport, "softib doctor")
//	s, err := r.Run(ctx, survey.New(cfg))
//
// It must not know what anybody makes of a survey.
package surveyrun
