#!/usr/bin/env escript
%% Plays the scripts of otp_groups.txt (see test_groups_recorded.py) on pg itself, and prints them with their
%% transcripts: escript record.escript < scripts.txt
%% What is after ": " in a line is ignored, so that the recording can be made again from itself.
-mode(compile).

main(_) -> lines(1).

lines(N) ->
    case io:get_line("") of
        eof -> ok;
        Line ->
            Script = hd(string:split(string:trim(Line), ": ")),
            io:format("~s: ~s~n", [Script, play(list_to_atom("scope" ++ integer_to_list(N)), Script)]),
            lines(N + 1)
    end.

play(Scope, Script) ->
    {ok, Pid} = pg:start_link(Scope),
    {Ref, _} = pg:monitor_scope(Scope),
    put(known, #{}),
    Members = maps:from_list([{N, member(N)} || N <- "123"]),
    Segments = steps(Scope, Ref, string:lexemes(Script, " "), Members),
    unlink(Pid), exit(Pid, kill),
    lists:join(" | ", Segments).

member(N) ->
    Pid = spawn(fun() -> receive stop -> ok end end),
    put(known, maps:put(Pid, N, get(known))),
    Pid.

steps(_, _, [], _) -> [];
steps(Scope, Ref, [Step | Steps], Members) ->
    {Result, NewMembers} = step(Scope, Step, Members),
    sys:get_state(Scope),
    [[Result, events(Ref), members(Scope)] | steps(Scope, Ref, Steps, NewMembers)].

step(Scope, "j" ++ [G | Who], Members) ->
    {atom_to_list(pg:join(Scope, [G], [maps:get(N, Members) || N <- Who])), Members};
step(Scope, "l" ++ [G | Who], Members) ->
    {atom_to_list(pg:leave(Scope, [G], [maps:get(N, Members) || N <- Who])), Members};
step(_, "x" ++ [N], Members) ->
    Pid = maps:get(N, Members),
    M = monitor(process, Pid),
    Pid ! stop,
    receive {'DOWN', M, process, Pid, _} -> ok end,
    timer:sleep(2),
    {"x", Members#{N := member(N)}}.

events(Ref) ->
    [[" ", E] || E <- lists:sort(events_of(Ref))].

events_of(Ref) ->
    receive
        {Ref, join, G, Pids} -> [["+", G, name(P)] || P <- Pids] ++ events_of(Ref);
        {Ref, leave, G, Pids} -> [["-", G, name(P)] || P <- Pids] ++ events_of(Ref)
    after 0 -> [] end.

members(Scope) ->
    [[" ", G, "=", lists:sort([name(P) || P <- pg:get_members(Scope, G)])] || G <- lists:sort(pg:which_groups(Scope))].

name(Pid) -> maps:get(Pid, get(known)).
