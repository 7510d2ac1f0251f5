# The fifth part of otp_oracle.txt: applications. Run it with `elixir otp_oracle_applications.exs`.
# Every line it prints is `what was done: what Elixir did`.
:logger.set_primary_config(:level, :none)
defmodule App do
  use Application
  def start(_type, :bad), do: {:error, :no_disk}
  def start(_type, name) do
    send(:main, {:started, name, Application.get_env(name, :size)})
    Supervisor.start_link([{Agent, fn -> name end}], strategy: :one_for_one, name: name)
  end
  def stop(name), do: send(:main, {:stopped, name})
end
Process.register(self(), :main)
load = fn name, deps, env -> :application.load({:application, name, [applications: [:kernel, :stdlib | deps], mod: {App, name}, env: env, registered: [], modules: [App], description: 'x', vsn: '1']}) end
all = fn -> Stream.repeatedly(fn -> receive do m -> m after 100 -> nil end end) |> Enum.take_while(& &1) end
say = fn what, x -> IO.puts("#{what}: #{inspect(x)}") end
ours = [:a_db, :b_web, :c_shop, :bad, :d_fails]
running = fn -> for {n, _, _} <- Application.started_applications(), n in ours, do: n end
load.(:a_db, [], size: 1)
load.(:b_web, [:a_db], size: 2)
load.(:c_shop, [:b_web, :a_db], [])
load.(:bad, [], [])
load.(:d_fails, [:c_shop, :bad], [])
Application.put_env(:b_web, :size, 20)
say.("app: ensure_all_started", Application.ensure_all_started(:c_shop))
say.("app: what they were started with, in order", for({:started, n, s} <- all.(), do: {n, s}))
say.("app: ensure_all_started of what runs", Application.ensure_all_started(:c_shop))
say.("app: ensure_all_started of what is not known", Application.ensure_all_started(:nobody) |> elem(0))
Application.stop(:c_shop)
Application.stop(:b_web); Application.stop(:a_db); all.()
say.("app: ensure_all_started of one of which a dependency fails, and what runs after", {Application.ensure_all_started(:d_fails) |> elem(0), running.()})
Application.ensure_all_started(:c_shop); all.()
Process.exit(Process.whereis(:b_web), :kill); Process.sleep(100)
say.("app: what runs after a temporary one was killed", running.() |> Enum.sort())
