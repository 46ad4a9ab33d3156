"""The control tokens of FunctionGemma's form (ai.google.dev, "FunctionGemma formatting")."""

from __future__ import annotations

START_TURN, END_TURN = "<start_of_turn>", "<end_of_turn>"
START_DECLARATION, END_DECLARATION = "<start_function_declaration>", "<end_function_declaration>"
START_CALL, END_CALL = "<start_function_call>", "<end_function_call>"
START_RESPONSE, END_RESPONSE = "<start_function_response>", "<end_function_response>"
ESCAPE = "<escape>"
BOS = "<bos>"

MARKERS = frozenset(
    {START_TURN, END_TURN, START_DECLARATION, END_DECLARATION, START_CALL, END_CALL}
    | {START_RESPONSE, END_RESPONSE, ESCAPE}
)
