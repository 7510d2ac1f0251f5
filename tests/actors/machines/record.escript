#!/usr/bin/env escript
%% Plays the scripts of otp_machines.txt (see script.py) on gen_statem itself, and prints them with their transcripts:
%%   escript record.escript < scripts.txt
%% What is after ": " in a line is ignored, so that the recording can be made again from itself. Some fifty scripts are
%% played at a time, because most of the time is spent waiting.
%%! +S 2
-mode(compile).

-define(UNIT_MS, 150).

main(_) ->
    logger:set_primary_config(level, none),
    play_all(read([])).

read(Lines) ->
    case io:get_line("") of
        eof -> lists:reverse(Lines);
        Line -> read([hd(string:split(string:trim(Line), ": ")) | Lines])
    end.

play_all([]) -> ok;
play_all(Scripts) ->
    {Now, Later} = lists:split(min(50, length(Scripts)), Scripts),
    Me = self(),
    Players = [spawn_link(fun() -> process_flag(trap_exit, true), Me ! {self(), play(S)} end) || S <- Now],
    lists:zipwith(fun(S, P) -> receive {P, T} -> io:format("~s: ~s~n", [S, T]) end end, Now, Players),
    play_all(Later).

play(Script) ->
    [Program, Steps] = string:split(Script, " | "),
    [Header | Rules] = string:split(Program, " ; ", all),
    [Mode, Enter, First | Actions] = string:lexemes(Header, " "),
    Arg = {Mode, Enter, list_to_atom(First), Actions, [rule(R) || R <- Rules], self()},
    {ok, Pid} = gen_statem:start_link(machine(), Arg, []),
    T0 = erlang:monotonic_time(millisecond),
    put(pending, []),
    Segments = steps(Pid, T0, string:lexemes(Steps, " "), [seen(Pid)]),
    case is_process_alive(Pid) of true -> exit(Pid, kill); false -> ok end,
    lists:join(" | ", lists:reverse(Segments)).

rule(Text) ->
    [State, Event, Uses, Result | Actions] = string:lexemes(Text, " "),
    {list_to_atom(State), Event, list_to_integer(Uses), Result, Actions}.

steps(_, _, [], Segments) -> Segments;
steps(Pid, T, [Step | Steps], Segments) ->
    case is_process_alive(Pid) of
        false -> Segments;
        true ->
            NewT = step(Pid, T, Step),
            steps(Pid, NewT, Steps, [seen(Pid) | Segments])
    end.

step(_, T, "w" ++ Units) ->
    NewT = T + list_to_integer(Units) * ?UNIT_MS,
    timer:sleep(max(0, NewT - erlang:monotonic_time(millisecond))),
    NewT;
step(Pid, T, "q" ++ _ = Call) ->
    put(pending, get(pending) ++ [{Call, gen_statem:send_request(Pid, Call)}]),
    T;
step(Pid, T, "i" ++ _ = Info) -> Pid ! Info, T;
step(Pid, T, Cast) -> gen_statem:cast(Pid, Cast), T.

%% What has happened until everything that was sent has been handled.
seen(Pid) ->
    try sys:get_state(Pid) catch _:_ -> ok end,
    receive {'EXIT', Pid, _} -> ok after 0 -> ok end,
    Notes = notes(),
    %% Answers came before that of get_state; only the news of an end may take a moment.
    Patience = case is_process_alive(Pid) of true -> 0; false -> 50 end,
    {Answers, Pending} = answers(get(pending), Patience, [], []),
    put(pending, Pending),
    lists:join(" ", Notes ++ Answers).

notes() ->
    receive {note, Text} -> [Text | notes()] after 0 -> [] end.

answers([], _, Done, Left) -> {lists:reverse(Done), lists:reverse(Left)};
answers([{Call, Request} | Requests], Patience, Done, Left) ->
    case gen_statem:wait_response(Request, Patience) of
        timeout -> answers(Requests, Patience, Done, [{Call, Request} | Left]);
        {reply, Reply} -> answers(Requests, Patience, [[Call, "=", Reply] | Done], Left);
        {error, _} -> answers(Requests, Patience, [[Call, "=x"] | Done], Left)
    end.

%% The machine: a module of its own, because an escript's cannot be a callback module.
machine() ->
    case code:is_loaded(played) of
        {file, _} -> played;
        false ->
            Forms = [begin {ok, Tokens, _} = erl_scan:string(F), {ok, Form} = erl_parse:parse_form(Tokens), Form end
                     || F <- string:split(source(), "\n\n", all)],
            {ok, played, Code} = compile:forms(Forms, [nowarn_export_all, export_all]),
            code:load_binary(played, "played", Code),
            played
    end.

source() ->
    "-module(played).\n\n"
    "init({Mode, Enter, First, Actions, Rules, Me}) ->"
    "  put(mode, {Mode, Enter}), {ok, First, {Rules, Me}, [action(A, none) || A <- Actions]}.\n\n"
    "callback_mode() ->"
    "  {Mode, Enter} = get(mode),"
    "  [case Mode of \"h\" -> handle_event_function; \"f\" -> state_functions end"
    "   | case Enter of \"+\" -> [state_enter]; \"-\" -> [] end].\n\n"
    "a(Type, Content, Data) -> handle_event(Type, Content, a, Data).\n\n"
    "b(Type, Content, Data) -> handle_event(Type, Content, b, Data).\n\n"
    "c(Type, Content, Data) -> handle_event(Type, Content, c, Data).\n\n"
    "handle_event(Type, Content, State, {Rules, Me}) ->"
    "  {Event, Text} = event(Type, Content),"
    "  Me ! {note, [atom_to_list(State), \"<\", Text]},"
    "  case find(State, Event, Rules, []) of"
    "    none -> keep_state_and_data;"
    "    {Result, Actions, NewRules} -> result(Result, Actions, Type, State, {NewRules, Me})"
    "  end.\n\n"
    "event(enter, Old) -> {\">\", [\">\", atom_to_list(Old)]};"
    "event(state_timeout, X) -> {\"st\", [\"st:\", X]};"
    "event(timeout, X) -> {\"et\", [\"et:\", X]};"
    "event({timeout, Name}, X) -> {Name, [Name, \":\", X]};"
    "event(_, X) -> {X, X}.\n\n"
    "find(_, _, [], _) -> none;"
    "find(S, E, [{S, E, Uses, Result, Actions} | Rules], Before) when Uses > 0 ->"
    "  {Result, Actions, lists:reverse(Before, [{S, E, Uses - 1, Result, Actions} | Rules])};"
    "find(S, E, [Rule | Rules], Before) -> find(S, E, Rules, [Rule | Before]).\n\n"
    "result(\"=\", Actions, Type, _, Data) -> {keep_state, Data, [action(A, Type) || A <- Actions]};"
    "result(\"=!\", Actions, Type, _, Data) -> {repeat_state, Data, [action(A, Type) || A <- Actions]};"
    "result(\"->\" ++ Next, Actions, Type, _, Data) ->"
    "  {next_state, list_to_atom(Next), Data, [action(A, Type) || A <- Actions]};"
    "result(\".\" ++ Reason, [], _, _, Data) -> {stop, list_to_atom(Reason), Data};"
    "result(\".\" ++ Reason, Actions, Type, _, Data) ->"
    "  {stop_and_reply, list_to_atom(Reason), [action(A, Type) || A <- Actions], Data}.\n\n"
    "action(\"p\", _) -> postpone;"
    "action(\"h\", _) -> hibernate;"
    "action(\"r\", {call, From}) -> {reply, From, \"ok\"};"
    "action(\"e:n\" ++ N, _) -> {next_event, internal, \"n\" ++ N};"
    "action(\"e:i\" ++ N, _) -> {next_event, info, \"i\" ++ N};"
    "action(\"e:c\" ++ N, _) -> {next_event, cast, \"c\" ++ N};"
    "action(Timeout, _) ->"
    "  {Name, Rest} = lists:split(2, Timeout),"
    "  Kind = case Name of \"st\" -> state_timeout; \"et\" -> timeout; _ -> {timeout, Name} end,"
    "  case Rest of"
    "    \"-\" -> {Kind, cancel};"
    "    \"~\" ++ Content -> {Kind, update, Content};"
    "    \"=\" ++ More ->"
    "      [Units, Content] = string:split(More, \":\"),"
    "      {Kind, time(list_to_integer(Units), Name), Content}"
    "  end.\n\n"
    "time(0, _) -> 0;"
    "time(Units, \"st\") -> Units * 150 + 20;"
    "time(Units, \"et\") -> Units * 150 + 29;"
    "time(Units, \"t1\") -> Units * 150 + 38;"
    "time(Units, \"t2\") -> Units * 150 + 47.\n\n"
    "terminate(Reason, State, {_, Me}) ->"
    "  Text = if is_atom(Reason) -> atom_to_list(Reason); true -> \"error\" end,"
    "  Me ! {note, [atom_to_list(State), \"!\", Text]}, ok.".
