# Plays the scripts of otp_supervision.txt (see script.py) on OTP itself, and prints them with their transcripts:
#   elixir record.exs < otp_supervision.txt
# What is after ": " in a line is ignored, so that the recording can be made again from itself.
:logger.set_primary_config(:level, :none)
Process.flag(:trap_exit, true)

defmodule Child do
  @moduledoc false
  use GenServer

  def start_link({name, starts, me}) do
    turn = :ets.update_counter(:starts, name, 1, {name, 0}) - 1

    case String.at(starts, turn) do
      "x" -> send(me, {:event, "x" <> name}); {:error, :failed}
      "i" -> send(me, {:event, "i" <> name}); :ignore
      _ -> GenServer.start_link(__MODULE__, {name, me})
    end
  end

  def init({name, me}) do
    Process.flag(:trap_exit, true)
    send(me, {:event, "+" <> name})
    {:ok, {name, me}}
  end

  def handle_cast(reason, _), do: {:stop, reason, :by_itself}
  def terminate(:shutdown, {name, me}), do: send(me, {:event, "-" <> name})
  def terminate(_, _), do: :ok
end

defmodule Play do
  @moduledoc false
  def init(arg), do: {:ok, arg}

  def play(script) do
    if :ets.whereis(:starts) != :undefined, do: :ets.delete(:starts)
    :ets.new(:starts, [:named_table, :public])
    [flags, children, steps] = String.split(script, " | ")
    [strategy, max_restarts, auto] = String.split(flags)

    flags = %{
      strategy: String.to_atom(strategy),
      intensity: String.to_integer(max_restarts),
      period: 600,
      auto_shutdown: String.to_atom(auto)
    }

    specs = for text <- String.split(children), do: spec(text)

    case :supervisor.start_link(__MODULE__, {flags, specs}) do
      {:ok, sup} -> run(sup, String.split(steps), [events()])
      {:error, _} -> [events() ++ ["=failed"]]
    end
    |> Enum.map(&Enum.join(&1, " "))
    |> Enum.join(" | ")
  end

  defp run(sup, [], done) do
    seen = for {id, pid, _, _} <- Enum.reverse(:supervisor.which_children(sup)), do: id <> if(is_pid(pid), do: "", else: "-")
    :gen_server.stop(sup, :shutdown, :infinity)
    events()
    Enum.reverse([seen | done])
  end

  defp run(sup, [step | rest], done) do
    answer = step(sup, step)
    happened = events()

    if Process.alive?(sup),
      do: run(sup, rest, [happened ++ answer | done]),
      else: Enum.reverse([happened ++ answer ++ ["dead"] | done])
  end

  defp step(sup, text) do
    case String.split(text, "!") do
      [name, reason] -> finish(List.keyfind(:supervisor.which_children(sup), name, 0), reason); []
      [call] -> [answer(call(sup, String.split(call, ":", parts: 2)))]
    end
  end

  defp finish({_, pid, _, _}, reason) when is_pid(pid) do
    ref = Process.monitor(pid)

    case reason do
      "kill" -> Process.exit(pid, :kill)
      "shutdownx" -> GenServer.cast(pid, {:shutdown, :x})
      other -> GenServer.cast(pid, String.to_atom(other))
    end

    receive do {:DOWN, ^ref, _, _, _} -> :ok end
  end

  defp finish(_, _), do: :ok

  defp call(sup, ["stop", name]), do: :supervisor.terminate_child(sup, name)
  defp call(sup, ["restart", name]), do: :supervisor.restart_child(sup, name)
  defp call(sup, ["delete", name]), do: :supervisor.delete_child(sup, name)
  defp call(sup, ["start", text]), do: :supervisor.start_child(sup, spec(text))

  defp answer(:ok), do: "=ok"
  defp answer({:ok, :undefined}), do: "=none"
  defp answer({:ok, _}), do: "=ok"
  defp answer({:error, :failed}), do: "=failed"
  defp answer({:error, {:failed, _}}), do: "=failed"
  defp answer({:error, _}), do: "=refused"

  defp spec(text) do
    [_, name, restart, significant | starts] = Regex.run(~r/^(\w+):(\w+)(\*?)(?:\(([.xi]*)\))?$/, text)

    %{
      id: name,
      start: {Child, :start_link, [{name, List.first(starts) || "", self()}]},
      restart: String.to_atom(restart),
      significant: significant == "*"
    }
  end

  # What happened, once nothing has for a while.
  defp events(), do: (receive do {:event, text} -> [text | events()]; {:EXIT, _, _} -> events() after 8 -> [] end)
end

for line <- IO.stream(:stdio, :line), line = String.trim_trailing(line) do
  if String.starts_with?(line, "#") do
    IO.puts(line)
  else
    script = line |> String.split(": ", parts: 2) |> hd()
    IO.puts("#{script}: #{Play.play(script)}")
  end
end
